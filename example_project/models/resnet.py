"""ResNet-50 (He et al., 2015, "Deep Residual Learning for Image Recognition", table 1)."""

import torch
from torch import nn


def conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Convolution without bias, then batch norm."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Bottleneck(nn.Module):
    """1×1 reduce, 3×3, 1×1 expand by four, and a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.reduce = conv_bn(inputs, width, 1)
        self.conv = conv_bn(width, width, 3, stride)
        self.expand = conv_bn(width, 4 * width, 1)
        self.relu = nn.ReLU(inplace=True)
        same = stride == 1 and inputs == 4 * width
        self.shortcut = nn.Identity() if same else conv_bn(inputs, 4 * width, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.reduce(x))
        out = self.relu(self.conv(out))
        out = self.expand(out)
        out += self.shortcut(x)
        return self.relu(out)


class ResNet50(nn.Module):
    """Images (N, 3, H, W) to class probabilities (N, classes)."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        stages, inputs = [], 64
        for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for block in range(depth):
                stages.append(Bottleneck(inputs, width, stride if block == 0 else 1))
                inputs = 4 * width
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.pool(self.stages(self.stem(images))).flatten(1)
        return nn.functional.softmax(self.classifier(features), dim=-1)
