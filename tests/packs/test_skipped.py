from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from pytest_cgins.core.errors import RecordError
from pytest_cgins.packs.store import blobs_of


@pytest.mark.parametrize("tier", ["shapes", "recipe", "full"])
def test_default_ops_leave_out_what_cannot_be_recorded(recorded, tier) -> None:
    """The model gets its sparse product; one warning names op, count and reason, and the rest is kept."""
    x = torch.randn(3, 3)
    sparse = x.to_sparse()
    products: list[torch.Tensor] = []

    def body() -> None:
        products.extend(torch.matmul(sparse, x) for _ in range(2))
        F.gelu(x)

    with pytest.warns(UserWarning, match="cannot be recorded") as caught:
        pack = recorded(body, tier=tier)
    assert torch.allclose(products[1], x @ x, atol=1e-6)
    assert [trace.call.op for trace in pack.traces] == ["torch.nn.functional.gelu"]
    assert len(caught) == 1
    assert str(caught[0].message) == (
        "calls were left out that cannot be recorded: torch.matmul, 2 calls: a tensor with layout "
        "torch.sparse_coo on device cpu has no strided storage to record"
    )
    assert caught[0].filename.endswith("conftest.py")


@pytest.mark.parametrize("tier", ["recipe", "full"])
def test_default_ops_leave_out_results_that_cannot_be_recorded(project, recorded, tmp_path, tier) -> None:
    """A marked function that proves unrecordable by its result runs once a call, and leaves no blob."""
    module = project(
        "import pytest_cgins\n@pytest_cgins.mark\ndef total(x):\n    return x.sum().item()\n"
        "@pytest_cgins.mark\ndef grow(x):\n    x.add_(1)\n    return x.sum().item()\n"
    )
    x = torch.zeros(4)

    def body() -> None:
        module.total(torch.arange(9.0))
        module.total(torch.ones(9))
        module.grow(x)

    with pytest.warns(UserWarning, match=r"total, 2 calls: the op returned float without a tensor"):
        pack = recorded(body, tier=tier)
    assert x.tolist() == [1] * 4
    assert [trace.call.op for trace in pack.traces] == [f"{module.__name__}.grow"]
    kept = {f"{blob.sha256}.safetensors" for blob in blobs_of(pack)}
    assert {file.name for file in (tmp_path / "pack" / "blobs").iterdir()} == kept


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (torch.Tensor.to_sparse, r"layout torch\.sparse_coo"),
        (torch.Tensor.to_sparse_csr, r"layout torch\.sparse_csr"),
        (lambda x: torch.nested.nested_tensor([x, x]), "a tensor with layout torch.strided"),
        (lambda x: x.to("meta"), "device meta"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), r"dtype torch\.qint8"),
    ],
    ids=["sparse", "csr", "nested", "meta", "quantized"],
)
@pytest.mark.filterwarnings("ignore:.*(prototype|beta|deprecat)")
def test_an_unsupported_layout_of_a_named_op_is_an_error(recorded, make, reason) -> None:
    """An op of the list is never left out silently: the error has its name, reason and remedy."""
    x = make(torch.rand(3, 3))
    with pytest.raises(RecordError, match=rf"^torch\.relu cannot be recorded: .*{reason}") as caught:
        recorded(lambda: torch.relu(x), ops=["torch.relu"])
    assert "leave the op out through ops=[…]" in caught.value.remedy


def test_nothing_but_unrecordable_calls_is_an_error(recorded, tmp_path) -> None:
    """Without any trace there is no pack to write, and the reasons are the error."""
    x = torch.randn(3, 3).to_sparse()
    with pytest.raises(RecordError, match=r"torch\.matmul cannot be recorded, in 1 call: .* no other call"):
        recorded(lambda: torch.matmul(x, x))
    assert not (tmp_path / "pack").exists()
