"""Operators of neural networks: `relax.op.nn.conv2d`, in script text `R.nn.conv2d`."""

from ....base import submodules as _submodules
from ..attention import attention as attention
from ..attention import attention_bias as attention_bias
from ..attention import attention_var_len as attention_var_len
from .activation import celu as celu
from .activation import elu as elu
from .activation import gelu as gelu
from .activation import gelu_tanh as gelu_tanh
from .activation import hardsigmoid as hardsigmoid
from .activation import hardswish as hardswish
from .activation import leakyrelu as leakyrelu
from .activation import log_softmax as log_softmax
from .activation import mish as mish
from .activation import prelu as prelu
from .activation import relu as relu
from .activation import relu6 as relu6
from .activation import selu as selu
from .activation import silu as silu
from .activation import softmax as softmax
from .activation import softplus as softplus
from .columns import col2im as col2im
from .columns import deformable_conv2d as deformable_conv2d
from .conv import conv1d as conv1d
from .conv import conv1d_transpose as conv1d_transpose
from .conv import conv2d as conv2d
from .conv import conv2d_transpose as conv2d_transpose
from .conv import conv3d as conv3d
from .conv import conv3d_transpose as conv3d_transpose
from .dropping import dropout as dropout
from .dropping import dropout_seeded as dropout_seeded
from .loss import cross_entropy_with_logits as cross_entropy_with_logits
from .loss import nll_loss as nll_loss
from .norm import batch_norm as batch_norm
from .norm import group_norm as group_norm
from .norm import instance_norm as instance_norm
from .norm import layer_norm as layer_norm
from .norm import rms_norm as rms_norm
from .padding import depth_to_space as depth_to_space
from .padding import pad as pad
from .padding import pixel_shuffle as pixel_shuffle
from .padding import space_to_depth as space_to_depth
from .pool import *
from .recurrent import gru as gru
from .recurrent import lstm as lstm
from .recurrent import rnn as rnn

__getattr__ = _submodules(__name__)
