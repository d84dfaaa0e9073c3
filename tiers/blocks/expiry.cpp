#include "tiers/blocks/expiry.hpp"

#include "tiers/blocks/block_states.hpp"
#include "tiers/blocks/lower_edges.hpp"

namespace cenote::blocks {

using memory::block_record;
using memory::block_ref;
using memory::block_state;

namespace {

constexpr std::uint32_t expiry_step = 16'384;  // records looked at in one go: under a millisecond
constexpr std::size_t expired_at_once = 4096;

}  // namespace

/// Forgets blocks of groups with a time to live that nobody used for so long; a part of all records a call. What the
/// tier below has of them goes the same way there.
void expiry::expire(boot_time now) {
  std::uint32_t looked = 0;
  auto at = state_.by_record.lower_bound(expiry_at_);
  for (std::size_t slabs = 0; slabs < state_.by_record.size() && looked < expiry_step; ++slabs) {
    if (at == state_.by_record.end()) at = state_.by_record.begin();
    slab& home = *at->second;
    const tenths ttl = home.owner->payer->given.ttl;
    if (ttl != tenths{}) {
      const std::uint64_t before = state_.counters.expired;
      looked += home.what.count;
      expire_slab(home, ttl, now);
      if (state_.counters.expired - before >= expired_at_once) break;  // the rest of it comes next
    }
    ++at;
  }
  expiry_at_ = at == state_.by_record.end() ? 0 : at->first;
}

void expiry::expire_slab(slab& home, tenths ttl, boot_time now) {
  std::vector<block_ref> late;
  for (std::uint32_t b = 0; b < home.what.count; ++b) {
    const block_ref ref(home.what.index, b);
    const block_record& record = state_.record_of(home, ref);
    if (record.state() != block_state::present || (record.flags & block_record::flag_kept) != 0) continue;
    if (age_of(record.last_use(), now) < ttl) continue;
    late.push_back(ref);
    if (late.size() == expired_at_once) break;
  }
  if (late.empty()) return;
  if (state_.options.has_lower()) {
    for (const block_ref ref : late) {
      edges_.note_removal(*home.owner, reduce_key(state_.record_of(home, ref).get_key().view(), home.what.group),
                          expired_);
    }
  }
  state_.counters.expired += late.size();
  blocks_.forget_blocks(*home.owner, late, now);
}

}  // namespace cenote::blocks
