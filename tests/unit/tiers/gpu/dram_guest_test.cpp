// The way between a device's tier and DRAM, over a real store and the simulated device.
#include "tiers/gpu/dram_guest.hpp"
