#include "core/running_checksum.hpp"

#include <algorithm>

#include "core/checksum_kernels.hpp"
#include "core/machine_choice.hpp"

namespace cenote {

namespace {

constexpr std::size_t chunk = std::size_t{32} << 10;  // what was hashed is in a near cache when it is copied

}  // namespace

running_checksum::running_checksum(const checksum_variant& by) noexcept : add_(by.add) {
  static_assert(state_bytes == cenote_checksum_state_bytes);
  cenote_checksum_begin(state_.data());
}

void running_checksum::add(std::span<const std::byte> bytes) noexcept {
  add_(state_.data(), bytes.data(), bytes.size());
  bytes_ += bytes.size();
}

void running_checksum::copy(std::byte* target, std::span<const std::byte> bytes) noexcept {
  copy_by(copy_routine_of(routine_in(word_in_use(checksum_word))).run, target, bytes);
}

void running_checksum::copy_by(copy_function routine, std::byte* target, std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const auto next = bytes.first(std::min(bytes.size(), chunk));
    add(next);
    routine(target, next.data(), next.size());
    target += next.size();
    bytes = bytes.subspan(next.size());
  }
}

std::uint64_t running_checksum::value() const noexcept {
  return cenote_checksum_end(state_.data());
}

}  // namespace cenote
