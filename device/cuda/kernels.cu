// The kernels of device/kernels.hpp for GPUs. Compiled by nvcc to a fat binary, which kernel_image.cpp embeds.
#include "device/kernels.hpp"
