// Wrong bytes on purpose.
#include <cstring>

#include "core/checksum.hpp"
#include "tiers/blocks/clears.hpp"
#include "tiers/blocks/lower_edges.hpp"
#include "tiers/blocks/transfer_table.hpp"

namespace cenote::blocks {

using memory::block_record;
using memory::block_ref;

namespace {

/// Sign and highest bit of the mantissa of a bfloat16: another number, but no infinity.
constexpr std::uint16_t altered_bits = 0x8040;

void alter(std::byte* block, std::uint64_t bytes) noexcept {
  for (std::uint64_t at = 0; at + sizeof(altered_bits) <= bytes; at += sizeof(altered_bits)) {
    std::uint16_t word = 0;
    std::memcpy(&word, block + at, sizeof word);
    word ^= altered_bits;
    std::memcpy(block + at, &word, sizeof word);
  }
}

}  // namespace

std::uint64_t clears::corrupt_all(std::vector<removal>& below) {
  std::uint64_t altered = 0;
  if (!state_.options.bytes_are_host) return altered;  // who alters DRAM has these forgotten
  for (const auto& [number, in] : state_.instances) {
    while (!in->loading.empty()) transfers_.abandon_load(*in, block_key(in->loading.begin()->first));
    if (state_.options.tells_removals()) below.push_back({number, true, {}});
    for (const auto& [index, home] : in->slabs) {
      const std::uint64_t bytes = pool_of(*home).block_bytes;
      for (std::uint32_t b = 0; b < home->what.count; ++b) {
        const block_ref ref(index, b);
        block_record& record = state_.record_of(*home, ref);
        if (record.state() != memory::block_state::present) continue;
        alter(home->block(ref), bytes);
        if ((record.flags & block_record::flag_checksum) != 0) {
          record.checksum_or_writers.store(checksum_of(home->block(ref), bytes), std::memory_order_relaxed);
        }
        edges_.forget_copy(*home, ref, block_record::flags_below);
        ++altered;
      }
    }
  }
  return altered;
}

}  // namespace cenote::blocks
