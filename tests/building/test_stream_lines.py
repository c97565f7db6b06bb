"""Lines that may take a kernel off its stream, for the people who are to change them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.building import stream_lines


@pytest.mark.parametrize(
    ("line", "leaves"),
    [
        ("softmax<<<r, 256>>>(x, y);", True),
        ("softmax<<<r, 256, 0>>>(x, y);", True),
        ("softmax<<<dim3(r, 1), dim3(16, 16), 0, 0>>>(x, y);", True),
        ("softmax<<<r, 256, f(a, b), cudaStreamPerThread>>>(x, y);", True),
        ("softmax<<<r, 256, 0, stream>>>(x, y);", False),
        ("softmax<<<dim3(r, 1), min(n, 256), f(a, b), stream>>>(x, y);", False),
        ("cudaMemcpy(y, x, n, cudaMemcpyDeviceToDevice);", True),
        ("cudaMemcpyAsync(y, x, n, cudaMemcpyDeviceToDevice);", True),
        ("cudaMemcpyAsync(y, x, n, cudaMemcpyDeviceToDevice, 0);", True),
        ("cudaMemcpyAsync(y, x, n, cudaMemcpyDeviceToDevice, stream);", False),
        ("cudaMemsetAsync(y, 0, n, stream);", False),
        ("cudaMemset(y, 0, n);", True),
        ("cudaStreamCreate(&own);", True),
        ("cublasCreate(&handle);", True),
        ("// softmax<<<r, 256>>>(x, y);", False),
        ("float y = x << 3;", False),
    ],
)
def test_what_a_line_does(tmp_path: Path, line: str, leaves: bool) -> None:
    """Launches by their fourth argument, copies by their last, streams and handles by their making."""
    file = tmp_path / "softmax.cu"
    file.write_text(f"int n;\n{line}\n")
    assert stream_lines.suspect([str(file)]) == ([f"softmax.cu:2: {line}"] if leaves else [])


def test_a_few_are_shown_and_the_others_counted(tmp_path: Path) -> None:
    """Of files that are not sources, or not there, none."""
    (tmp_path / "a.cu").write_text("k<<<1, 2>>>();\n" * 9)
    (tmp_path / "a.py").write_text("k<<<1, 2>>>();\n")
    shown = stream_lines.suspect(str(tmp_path / name) for name in ("a.cu", "a.py", "gone.cu"))
    assert shown[0] == "a.cu:1: k<<<1, 2>>>();"
    assert len(shown) == stream_lines.SHOWN + 1
    assert shown[-1] == "and 4 more"
