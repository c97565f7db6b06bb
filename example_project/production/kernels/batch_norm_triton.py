import math

import torch
import triton
import triton.language as tl

_ITEM = {torch.float16: 2, torch.bfloat16: 2, torch.float32: 4}


@triton.jit
def _normalize(
    x,
    out,
    mean,
    var,
    weight,
    bias,
    images,
    units,
    per_plane,
    tiles,
    eps,
    HAS_WEIGHT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    LAST: tl.constexpr,
    G: tl.constexpr,
    NB: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # A tile is NB images by BLOCK places; the channel of a place is the same in all images. A unit is G
    # neighbouring elements of one channel. LAST: an image is one pixel, a place is a channel.
    pid = tl.program_id(0)
    UNITS: tl.constexpr = BLOCK // G
    u = (pid % tiles) * UNITS + tl.arange(0, UNITS)
    inside = u < units
    c = u if LAST else u // per_plane
    mu = tl.load(mean + c, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt_rn(tl.load(var + c, mask=inside, other=1.0).to(tl.float32) + eps)
    if HAS_WEIGHT:
        scale = scale * tl.load(weight + c, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        shift = tl.load(bias + c, mask=inside, other=0.0).to(tl.float32)
    else:
        shift = tl.zeros([UNITS], tl.float32)
    n = (pid // tiles).to(tl.int64) * NB + tl.arange(0, NB)
    if G == 1:
        offset = n[:, None] * units + u[None, :]
        mask = (n < images)[:, None] & inside[None, :]
        v = tl.load(x + offset, mask=mask, other=0.0).to(tl.float32)
        r = (v - mu[None, :]) * scale[None, :] + shift[None, :]
        tl.store(out + offset, r.to(out.dtype.element_ty), mask=mask)
    else:
        g = tl.arange(0, G)
        place = u[:, None] * G + g[None, :]
        offset = n[:, None, None] * (units * G) + place[None, :, :]
        mask = ((n < images)[:, None] & inside[None, :])[:, :, None]
        v = tl.load(x + offset, mask=mask, other=0.0).to(tl.float32)
        r = (v - mu[None, :, None]) * scale[None, :, None] + shift[None, :, None]
        tl.store(out + offset, r.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _partial_stats(
    x,
    part_mean,
    part_m2,
    count,
    span,
    plane,
    channels,
    image_stride,
    channel_stride,
    pixel_stride,
    BLOCK: tl.constexpr,
):
    # Training only: mean and sum of squared deviations of one piece of one channel, in two exact steps.
    pid = tl.program_id(0)
    c = (pid % channels).to(tl.int64)
    part = (pid // channels).to(tl.int64)
    low = part * span
    high = tl.minimum(low + span, count)
    lane = tl.arange(0, BLOCK)
    base = x + c * channel_stride
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(low, high, BLOCK):
        i = start + lane
        inside = i < high
        offset = (i // plane) * image_stride + (i % plane) * pixel_stride
        total += tl.load(base + offset, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / (high - low).to(tl.float32)
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(low, high, BLOCK):
        i = start + lane
        inside = i < high
        offset = (i // plane) * image_stride + (i % plane) * pixel_stride
        d = tl.load(base + offset, mask=inside, other=0.0).to(tl.float32) - mean
        squares += tl.where(inside, d * d, 0.0)
    where = part * channels + c
    always = part >= 0
    tl.store(part_mean + where, mean, mask=always)
    tl.store(part_m2 + where, tl.sum(squares, axis=0), mask=always)


@triton.jit
def _finish_stats(
    part_mean,
    part_m2,
    mean_out,
    var_out,
    running_mean,
    running_var,
    count,
    span,
    splits,
    channels,
    keep,
    momentum,
    HAS_MEAN: tl.constexpr,
    HAS_VAR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # Training only: the pieces are combined in a fixed order (Chan), running statistics are updated.
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = c < channels
    seen = tl.zeros([BLOCK], tl.float32)
    mean = tl.zeros([BLOCK], tl.float32)
    m2 = tl.zeros([BLOCK], tl.float32)
    for part in range(splits):
        left = count - part.to(tl.int64) * span
        n = tl.minimum(left, span).to(tl.float32)
        where = part.to(tl.int64) * channels + c
        other_mean = tl.load(part_mean + where, mask=inside, other=0.0)
        other_m2 = tl.load(part_m2 + where, mask=inside, other=0.0)
        both = seen + n
        delta = other_mean - mean
        mean += delta * (n / both)
        m2 += other_m2 + delta * delta * (seen * n / both)
        seen = both
    tl.store(mean_out + c, mean, mask=inside)
    tl.store(var_out + c, m2 / seen, mask=inside)
    if HAS_MEAN:
        old = tl.load(running_mean + c, mask=inside, other=0.0).to(tl.float32)
        new = keep * old + momentum * mean
        tl.store(running_mean + c, new.to(running_mean.dtype.element_ty), mask=inside)
    if HAS_VAR:
        old = tl.load(running_var + c, mask=inside, other=0.0).to(tl.float32)
        new = keep * old + momentum * (m2 / (seen - 1.0))
        tl.store(running_var + c, new.to(running_var.dtype.element_ty), mask=inside)


def _batch_stats(x, last, channels, plane, running_mean, running_var, momentum):
    count = x.numel() // channels
    if count == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {x.shape}")
    for running in (running_mean, running_var):
        if running is not None and not running.is_contiguous():
            raise ValueError("running statistics must be contiguous in training")
    splits = max(1, min(triton.cdiv(count, 2048), triton.cdiv(1056, channels), 256))
    span = triton.cdiv(count, splits)
    splits = triton.cdiv(count, span)
    parts = torch.empty((2, splits * channels), dtype=torch.float32, device=x.device)
    stats = torch.empty((2, channels), dtype=torch.float32, device=x.device)
    strides = (plane * channels, 1, channels) if last else (plane * channels, plane, 1)
    _partial_stats[(splits * channels,)](
        x, parts[0], parts[1], count, span, plane, channels, *strides, BLOCK=1024, num_warps=4
    )
    mean, var = stats[0], stats[1]
    _finish_stats[(triton.cdiv(channels, 64),)](
        parts[0],
        parts[1],
        mean,
        var,
        mean if running_mean is None else running_mean,
        var if running_var is None else running_var,
        count,
        span,
        splits,
        channels,
        1.0 - momentum,
        float(momentum),
        HAS_MEAN=running_mean is not None,
        HAS_VAR=running_var is not None,
        BLOCK=64,
        num_warps=2,
    )
    return mean, var


def _checked(input, running_mean, running_var, weight, bias, channels):
    if input.dtype not in _ITEM:
        raise TypeError(f"batch_norm of {input.dtype} is not supported")
    for each in (running_mean, running_var, weight, bias):
        if each is not None:
            if each.dtype not in _ITEM:
                raise TypeError(f"parameters of {each.dtype} are not supported")
            if each.dim() != 1 or each.shape[0] != channels:
                raise ValueError(f"a parameter of shape {tuple(each.shape)} for {channels} channels")


def batch_norm(
    input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05
):
    shape = input.shape
    if len(shape) < 2:
        raise ValueError("batch_norm needs an input (N, C, ...)")
    channels = shape[1]
    _checked(input, running_mean, running_var, weight, bias, channels)
    if not training and (running_mean is None or running_var is None):
        raise ValueError("running_mean and running_var are needed where training is False")
    last = False
    if input.is_contiguous():
        x = input
    elif (len(shape) == 4 and input.is_contiguous(memory_format=torch.channels_last)) or (
        len(shape) == 5 and input.is_contiguous(memory_format=torch.channels_last_3d)
    ):
        x, last = input, True
    else:
        x = input.contiguous()
    out = torch.empty_like(x)
    total = x.numel()
    if total == 0:
        return out
    places = total // shape[0]
    plane = places // channels
    if places > 2147418112:
        raise ValueError("an image of 2^31 elements is not supported")
    if training:
        mean, var = _batch_stats(x, last, channels, plane, running_mean, running_var, momentum)
    else:
        mean, var = running_mean.contiguous(), running_var.contiguous()
    if weight is not None:
        weight = weight.contiguous()
    if bias is not None:
        bias = bias.contiguous()
    vector = 16 // _ITEM[x.dtype]
    tile = 512 * vector if total >= 1048576 else 128 * vector  # elements of a program
    if last or plane == 1:
        images, units, per_plane, group = total // channels, channels, 1, 1
        block = min(triton.next_power_of_2(channels), 512)
        several = tile // block
        last = True
    else:
        images = shape[0]
        group = math.gcd(plane, vector)
        if 2 * group < vector:
            group = 1
            if total >= 4194304:
                tile *= 2
        units, per_plane = places // group, plane // group
        block = 128 * vector
        if images * 2 <= tile // block:
            tile = block * triton.next_power_of_2(images)
        several = tile // block
    tiles = triton.cdiv(units * group, block)
    _normalize[(tiles * triton.cdiv(images, several),)](
        x,
        out,
        mean,
        var,
        mean if weight is None else weight,
        mean if bias is None else bias,
        images,
        units,
        per_plane,
        tiles,
        eps,
        HAS_WEIGHT=weight is not None,
        HAS_BIAS=bias is not None,
        LAST=last,
        G=group,
        NB=several,
        BLOCK=block,
        num_warps=4,
    )
    return out
