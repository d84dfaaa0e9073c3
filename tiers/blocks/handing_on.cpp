#include "tiers/blocks/handing_on.hpp"

#include <algorithm>

#include "tiers/blocks/eviction_order.hpp"
#include "tiers/blocks/lower_edges.hpp"
#include "tiers/blocks/transfer_table.hpp"

namespace cenote::blocks {

using memory::block_record;
using memory::block_ref;
using memory::block_state;

namespace {

constexpr std::uint32_t looks_a_step = 8192;
constexpr std::size_t writes_a_step = 256;
constexpr unsigned most_tries = 10;
constexpr unsigned tries_of_missed = 4;
constexpr tenths pause = tenths(3);            // between two tries
constexpr std::uint64_t catch_up_divisor = 4;  // of the window

block_ref ref_in(const slab& home, std::uint32_t record) noexcept {
  return {home.what.index, record - home.what.first_record};
}

}  // namespace

void handing_on::begin(edge_number edge, handing_purpose purpose) {
  (void)end();
  purpose_ = purpose;
  is_under_way_ = true;
  is_sorted_ = false;
  edge_ = edge;
  copies_ = purpose == handing_purpose::stopping ? block_record::flags_below : block_record::flag_of(edge);
  next_record_ = 0;
  tries_ = purpose == handing_purpose::catch_up ? most_tries : 1;
  // It refuses for a moment where this node removes some, and else for good: nothing that ends waits for that.
  if (state_.options.edges[edge].late_offers == late_offers::missed)
    tries_ = most_tries - (offers_missed() ? tries_of_missed : 1);
  edges_.begin_losses(edge);
  if (offers_missed()) take_missed();
}

bool handing_on::offers_missed() const noexcept {
  return purpose_ == handing_purpose::catch_up && state_.options.edges[edge_].late_offers == late_offers::missed;
}

/// Instead of a look through all slabs.
void handing_on::take_missed() {
  for (const chain_block& each : edges_.take_missed(edge_)) {
    if (find(each) == nullptr || !is_wanted(each.record)) continue;
    if (!has_it_below(each)) wanted_.emplace_back(count_of(state_.records[each.record].last_use()), each);
  }
  sort_wanted();
}

void handing_on::sort_wanted() {
  std::ranges::sort(wanted_, {}, [](const auto& each) { return std::pair(each.first, ~each.second.record); });
  is_sorted_ = true;
}

bool handing_on::step(boot_time now) {
  if (!is_under_way_) return false;
  if (!is_sorted_) {
    gather();
    return true;
  }
  settle();
  offer_again(now);
  return write_some();
}

/// Blocks that other nodes stored here are offered by those nodes.
bool handing_on::is_wanted(std::uint32_t record) const {
  const block_kind kind = order_.kind_of(record);
  return kind != block_kind::copy && (purpose_ != handing_purpose::catch_up || kind != block_kind::hosted);
}

bool handing_on::has_room(const slab& home) {
  const std::uint64_t most = state_.options.edges[edge_].write_window / catch_up_divisor;
  const std::uint64_t writing = transfers_.writing_bytes(edge_);
  if (purpose_ == handing_purpose::catch_up && writing > 0 && writing + home.what.stride > most) return false;
  return transfers_.may_write(edge_, pool_of(home));
}

/// Looks through some slabs; after the last one the blocks are put in order.
void handing_on::gather() {
  std::uint32_t looked = 0;
  auto at = state_.by_record.lower_bound(next_record_);
  for (; at != state_.by_record.end() && looked < looks_a_step; ++at) {
    const slab& home = *at->second;
    for (std::uint32_t i = 0; i < home.what.count; ++i) {
      const std::uint32_t number = home.what.first_record + i;
      const block_record& record = state_.records[number];
      const bool is_here = record.state() == block_state::present;
      if (!is_here || !is_wanted(number)) continue;
      if ((record.flags & copies_) == 0)
        wanted_.emplace_back(count_of(record.last_use()), chain_block{number, record.version()});
    }
    looked += home.what.count;
    next_record_ = home.what.first_record + home.what.count;
  }
  if (at == state_.by_record.end()) sort_wanted();
}

/// Null: it is not here any more.
slab* handing_on::find(const chain_block& block) const noexcept {
  slab* const home = state_.slab_of_record(block.record);
  if (home == nullptr) return nullptr;
  const block_record& record = state_.records[block.record];
  return record.state() == block_state::present && record.version() == block.version ? home : nullptr;
}

bool handing_on::has_it_below(const chain_block& block) const noexcept {
  return find(block) != nullptr && (state_.records[block.record].flags & copies_) != 0;
}

/// Its transfer is over, or there was none.
void handing_on::note_end(const chain_block& block) {
  if (find(block) == nullptr) return;
  if (has_it_below(block))
    ++so_far_.taken;
  else
    refused_.push_back(block);
}

/// A home that takes much at once has no room for a moment.
void handing_on::offer_again(boot_time now) {
  if (!wanted_.empty() || !written_.empty() || refused_.empty() || tries_ >= most_tries) return;
  if (again_at_ == boot_time{}) again_at_ = now + pause;
  if (!is_due(again_at_, now)) return;
  again_at_ = {};
  ++tries_;
  for (const chain_block& each : refused_) wanted_.emplace_back(count_of(state_.records[each.record].last_use()), each);
  std::ranges::reverse(wanted_);
  refused_.clear();
}

/// The tier gives up what was used later than what it would be written next: what is written first would go first.
bool handing_on::is_full() const noexcept {
  return purpose_ == handing_purpose::stopping && !wanted_.empty() &&
         count_of(edges_.latest_loss(edge_)) > wanted_.back().first;
}

void handing_on::refuse_rest() {
  for (const auto& [used, each] : wanted_) note_end(each);
  wanted_.clear();
  tries_ = most_tries;
}

/// True: more fits now.
bool handing_on::write_some() {
  if (is_full()) refuse_rest();
  for (std::size_t i = 0; i < writes_a_step && !wanted_.empty(); ++i) {
    const chain_block next = wanted_.back().second;
    slab* const home = find(next);
    if (home != nullptr && !has_it_below(next)) {
      const block_ref ref = ref_in(*home, next.record);
      if (state_.away[edge_]) return false;
      if (!transfers_.is_moving(*home, ref)) {
        if (!has_room(*home)) return false;
        (void)edges_.write_copy(edge_, *home, ref, offers_missed() ? write_occasion::catch_up : write_occasion::later);
      }
      written_.push_back(next);
    } else {
      note_end(next);
    }
    wanted_.pop_back();
  }
  return !wanted_.empty();
}

/// Counts those whose transfers have ended.
void handing_on::settle() {
  while (!written_.empty()) {
    const chain_block& first = written_.front();
    const slab* const home = find(first);
    if (home != nullptr && transfers_.is_moving(*home, ref_in(*home, first.record))) return;
    note_end(first);
    written_.pop_front();
  }
}

bool handing_on::is_over() const noexcept {
  if (purpose_ == handing_purpose::stopping && is_sorted_ && state_.away[edge_]) return is_under_way_;
  const bool may_go_on = !refused_.empty() && tries_ < most_tries;
  return is_under_way_ && is_sorted_ && wanted_.empty() && written_.empty() && !may_go_on;
}

handed_on handing_on::end() {
  settle();
  if (offers_missed()) {  // what had no turn yet is offered when the tier is back again
    for (const auto& [used, each] : wanted_) edges_.note_missed(edge_, each);
  }
  for (const chain_block& each : written_) note_end(each);
  for (const auto& [used, each] : wanted_) note_end(each);
  for (const chain_block& each : refused_) {
    const slab* const home = find(each);
    if (home == nullptr) continue;
    ++so_far_.left;
    so_far_.left_bytes += home->what.stride;
  }
  wanted_ = {};
  written_ = {};
  refused_ = {};
  again_at_ = {};
  is_under_way_ = false;
  return std::exchange(so_far_, {});
}

}  // namespace cenote::blocks
