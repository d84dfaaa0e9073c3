#include "tiers/blocks/clears.hpp"

#include <algorithm>

#include "tiers/blocks/block_states.hpp"
#include "tiers/blocks/handed_out.hpp"
#include "tiers/blocks/lower_edges.hpp"
#include "tiers/blocks/transfer_table.hpp"

namespace cenote::blocks {

using memory::block_ref;
using memory::block_state;

std::optional<std::uint64_t> clears::clear_instance(const std::string& id, boot_time now, std::vector<removal>* below) {
  const auto [first, last] = state_.by_id.equal_range(id);
  if (first == last) return std::nullopt;
  std::uint64_t cleared = 0;
  for (auto each = first; each != last; ++each) cleared += clear_blocks(*each->second, now, below);
  return cleared;
}

std::uint64_t clears::clear_all(boot_time now, std::vector<removal>* below) {
  std::uint64_t cleared = 0;
  for (const auto& [number, each] : state_.instances) cleared += clear_blocks(*each, now, below);
  return cleared;
}

std::optional<std::vector<clear_work>> clears::begin_clear(const std::string& id, std::vector<removal>& below) {
  std::vector<clear_work> begun;
  for (const auto& [number, each] : state_.instances) {
    if (id.empty() || each->spec.id == id) begun.push_back(begin_clear_of(*each, &below));
  }
  if (begun.empty() && !id.empty()) return std::nullopt;
  return begun;
}

clear_work clears::begin_clear_of(instance& instance, std::vector<removal>* below) {
  clear_work begun{.instance = instance.number, .reserved = {}, .slabs = {}, .under_way = instance.clears};
  for (const auto& [bits, held] : instance.reservations) begun.reserved.push_back(bits);
  for (const auto& [index, home] : instance.slabs) begun.slabs.push_back(index);
  state_.spent += begun.reserved.size() / 16 + begun.slabs.size();
  state_.requests.forget(instance.number);
  while (!instance.loading.empty()) transfers_.abandon_load(instance, block_key(instance.loading.begin()->first));
  if (!state_.options.tells_removals() || below == nullptr) return begun;
  const auto same = [&](const removal& each) { return each.all && each.instance == instance.number; };
  if (std::ranges::none_of(*below, same)) below->push_back({instance.number, true, {}});
  return begun;
}

std::optional<clear_work> clears::begin_clear(instance_number number) {
  const auto found = state_.instances.find(number);
  if (found == state_.instances.end()) return std::nullopt;
  return begin_clear_of(*found->second, nullptr);
}

std::uint64_t clears::forget_keys(instance_number number, std::span<const block_key> keys, boot_time now) {
  const auto found = state_.instances.find(number);
  if (found == state_.instances.end()) return 0;
  instance& in = *found->second;
  std::vector<block_ref> refs;
  for (const block_key& each : keys) {
    transfers_.abandon_load(in, each);
    if (const auto here = state_.find_present(in, each)) refs.push_back(*here);
  }
  std::ranges::sort(refs, {}, &block_ref::bits);  // a key may be named twice
  refs.erase(std::unique(refs.begin(), refs.end()), refs.end());
  return refs.empty() ? 0 : blocks_.forget_blocks(in, refs, now);
}

bool clears::clear_some(clear_work& work, boot_time now, std::uint64_t budget) {
  const auto found = state_.instances.find(work.instance);
  if (found == state_.instances.end()) return true;
  instance& in = *found->second;
  const std::uint64_t begun = state_.spent;
  while (state_.spent - begun < budget) {
    if (!work.reserved.empty()) {
      handed_out_.revoke_reservation(in, work.reserved.back());
      work.reserved.pop_back();
      ++state_.spent;
    } else if (work.slabs.empty()) {
      return true;
    } else if (clear_slab(in, work, now)) {
      work.slabs.pop_back();
      work.next_block = 0;
    }
  }
  return work.reserved.empty() && work.slabs.empty();
}

/// The next blocks of the last slab; true: that was all of it.
bool clears::clear_slab(instance& instance, clear_work& work, boot_time now) {
  constexpr std::size_t step = 1024;
  ++state_.spent;
  const auto found = instance.slabs.find(work.slabs.back());
  if (found == instance.slabs.end() || found->second->present == 0) return true;
  slab& home = *found->second;
  std::vector<block_ref> refs;
  const std::uint32_t first = work.next_block;
  for (; work.next_block < home.what.count && refs.size() < step; ++work.next_block) {
    const block_ref ref(home.what.index, work.next_block);
    if (state_.record_of(home, ref).state() == block_state::present) refs.push_back(ref);
  }
  state_.spent += (work.next_block - first) / 4;
  if (!refs.empty()) work.cleared += blocks_.forget_blocks(instance, refs, now);
  return work.next_block >= home.what.count;
}

std::uint64_t clears::clear_blocks(instance& instance, boot_time now, std::vector<removal>* below) {
  clear_work work = begin_clear_of(instance, below);
  while (!clear_some(work, now, turn_budget)) continue;
  return work.cleared;
}

}  // namespace cenote::blocks
