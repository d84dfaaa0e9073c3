#include "core/streaming_kernel.hpp"

namespace {

/// Non-temporal pairs hint that the line is not read soon. A release orders them as it does all stores.
struct neon_line {
  static void stream(std::byte* target, const std::byte* source) noexcept {
    asm volatile(
        "ldp q0, q1, [%1]\n\t"
        "ldp q2, q3, [%1, #32]\n\t"
        "stnp q0, q1, [%0]\n\t"
        "stnp q2, q3, [%0, #32]"
        :
        : "r"(target), "r"(source)
        : "v0", "v1", "v2", "v3", "memory");
  }
  static void fetch(const std::byte* source) noexcept { __builtin_prefetch(source); }
  static void fence() noexcept {}
};

}  // namespace

const cenote_streaming_copy* cenote_copies_neon() noexcept {
  return cenote::streaming::copies<neon_line>;
}
