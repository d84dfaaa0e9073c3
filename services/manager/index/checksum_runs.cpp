#include "services/manager/index/checksum_runs.hpp"

#include <algorithm>

namespace cenote::manager {

checksum_word* checksum_runs::make(const block_checksums& checksums) {
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(8, head_words + checksums.values.size()));
  auto& unused = unused_[static_cast<std::size_t>(std::countr_zero(size))];
  checksum_word* run = nullptr;
  if (unused.empty()) {
    run = arena_.make<checksum_word>(size).data();
    std::uint32_t& count = counts_[static_cast<std::size_t>(std::countr_zero(size))];
    if (++count > unused.capacity()) unused.reserve(2 * std::size_t{count});  // so that release() allocates nothing
    run[0].store(size, std::memory_order_release);
  } else {
    run = unused.back();
    unused.pop_back();
  }
  run[1].store(checksums.specs, std::memory_order_release);
  for (std::size_t i = 0; i < checksums.values.size(); ++i) {
    run[head_words + i].store(checksums.values[i], std::memory_order_release);
  }
  return run;
}

void checksum_runs::release(checksum_word* run) noexcept {
  const std::uint64_t size = run[0].load(std::memory_order_relaxed);
  unused_[static_cast<std::size_t>(std::countr_zero(size))].push_back(run);
}

bool checksum_runs::append_block(const checksum_word* run, std::uint32_t position, std::vector<std::uint64_t>& out) {
  const std::uint64_t size = run[0].load(std::memory_order_acquire);
  const std::uint64_t specs = run[1].load(std::memory_order_acquire);
  const auto count = static_cast<std::size_t>(std::popcount(specs));
  const std::size_t first = head_words + position * count;
  if (first + count > size) return false;
  out.push_back(specs);
  for (std::size_t i = first; i < first + count; ++i) out.push_back(run[i].load(std::memory_order_acquire));
  return true;
}

block_checksums checksum_runs::all(const checksum_word* run, std::size_t blocks) {
  block_checksums checksums{.specs = run[1].load(std::memory_order_relaxed)};
  checksums.values.resize(blocks * static_cast<std::size_t>(std::popcount(checksums.specs)));
  for (std::size_t i = 0; i < checksums.values.size(); ++i) {
    checksums.values[i] = run[head_words + i].load(std::memory_order_relaxed);
  }
  return checksums;
}

std::size_t checksum_runs::bytes() const noexcept {
  std::size_t bytes = 0;
  for (const auto& unused : unused_) bytes += unused.capacity() * sizeof(checksum_word*);
  return bytes;
}

}  // namespace cenote::manager
