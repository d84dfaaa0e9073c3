#include "device/cuda/kernel_image.hpp"

#if defined(CENOTE_KERNEL_IMAGE)
__asm__(
    ".pushsection .rodata\n"
    ".balign 64\n"
    "cenote_kernel_image_begin:\n"
    ".incbin \"" CENOTE_KERNEL_IMAGE
    "\"\n"
    "cenote_kernel_image_end:\n"
    ".popsection\n");
extern "C" {
extern const std::byte cenote_kernel_image_begin[];
extern const std::byte cenote_kernel_image_end[];
}
#endif

namespace cenote::cuda {

std::span<const std::byte> kernel_image() noexcept {
#if defined(CENOTE_KERNEL_IMAGE)
  return {cenote_kernel_image_begin, cenote_kernel_image_end};
#else
  return {};
#endif
}

}  // namespace cenote::cuda
