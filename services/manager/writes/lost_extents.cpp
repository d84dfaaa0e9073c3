#include "services/manager/writes/lost_extents.hpp"

#include <algorithm>
#include <utility>

#include "services/manager/writes/block_site.hpp"
#include "services/manager/writes/removal_pause.hpp"

namespace cenote::manager {

namespace {

constexpr std::uint32_t repetitions_of_open = 2;
constexpr std::uint32_t most_storage_batches = 8;  ///< under way at a storage, for a deletion here to join them
constexpr std::chrono::milliseconds busy_pause{50};

/// Whether the names of an extent's blocks in a storage are known without their keys.
bool has_names(const storage_state* storage) noexcept {
  return storage != nullptr && form_of(storage->terms->type) != storage_form::plugin;
}

}  // namespace

void lost_extents::add(const lost_extent& extent) {
  if (extents_.size() >= most_extents) return;
  std::size_t count = 0;
  for (std::size_t i = 0; i < most_storages; ++i) {
    if (!has_names(state_.storages[i].get())) continue;
    lost_part part{.name = extent.name};
    if (extent.may_be_open) part.repetitions = repetitions_of_open;
    storages_[static_cast<std::uint8_t>(i)].waiting.emplace(extent.due, part);
    ++count;
  }
  if (count == 0) return;
  extents_.emplace(extent.name, extent_work{.blocks = extent.blocks, .storages = count});
  ++state_.instance(extent.name.instance)->lost_extents;
}

std::uint64_t lost_extents::keys_of(const lost_part& part, const storage_terms& storage) const {
  if (form_of(storage.type) == storage_form::files) return 1;
  return std::uint64_t{extents_.at(part.name).blocks} * state_.instance(part.name.instance)->terms->specs.size();
}

std::vector<removal_item> lost_extents::items_of(const lost_part& part, const storage_terms& storage) const {
  const instance_terms& instance = *state_.instance(part.name.instance)->terms;
  std::vector<removal_item> items;
  if (form_of(storage.type) == storage_form::files) {
    items.push_back({.place = writer_of(storage, instance, instance.specs.front()).folder(part.name.extent),
                     .scope = removal_scope::folder});
    return items;
  }
  const std::uint32_t blocks = extents_.at(part.name).blocks;
  const auto end = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(keys_of(part, storage), std::uint64_t{part.next_key} + keys_at_once));
  std::optional<uri_writer> writer;
  for (std::uint32_t key = part.next_key; key < end; ++key) {
    const std::uint32_t position = key % blocks;
    if (!writer || position == 0) writer.emplace(writer_of(storage, instance, instance.specs[key / blocks]));
    items.push_back({.place = writer->key(part.name.extent, position)});
  }
  return items;
}

void lost_extents::issue_part(storage_work& work, storage_state& storage, round_time now) {
  if (storage.worker == nullptr || !storage.is_readable()) {
    work.pause_end = now + first_removal_pause;
    return;
  }
  if (storage.batches >= most_storage_batches) {
    work.pause_end = now + busy_pause;
    return;
  }
  work.issued = work.waiting.begin()->second;
  work.waiting.erase(work.waiting.begin());
  work.batch = next_batch_++;
  work.worker = storage.worker_number;
  ++storage.batches;
  storage.worker->remove({.number = work.batch, .items = items_of(*work.issued, *storage.terms)});
}

void lost_extents::drop(const storage_work& work, ledger& changes) {
  if (work.issued) confirm(work.issued->name, changes);
  for (const auto& [due, part] : work.waiting) confirm(part.name, changes);
}

void lost_extents::issue(ledger& changes, round_time now) {
  for (auto& [number, work] : storages_) {
    storage_state* const storage = state_.storages[number].get();
    if (!has_names(storage)) {
      drop(std::exchange(work, {}), changes);
      continue;
    }
    if (work.issued && work.worker != storage->worker_number) {  // it has no outcome
      work.waiting.emplace(now, *std::exchange(work.issued, std::nullopt));
    }
    if (work.issued || work.waiting.empty()) continue;
    if (std::max(work.waiting.begin()->first, work.pause_end) <= now) issue_part(work, *storage, now);
  }
  std::erase_if(storages_, [](const auto& entry) { return entry.second.waiting.empty() && !entry.second.issued; });
}

void lost_extents::complete(const removal_outcome& outcome, ledger& changes, round_time now) {
  for (auto& [number, work] : storages_) {
    if (!work.issued || work.batch != outcome.number) continue;
    storage_state* const storage = state_.storages[number].get();
    if (storage == nullptr || storage->worker_number != work.worker) return;  // issue() sees it
    --storage->batches;
    lost_part part = *std::exchange(work.issued, std::nullopt);
    if (std::ranges::all_of(outcome.failures, &std::string::empty))
      return advance(work, part, *storage->terms, changes, now);
    ++storage->failed_deletions;
    const auto pause = removal_pause(part.attempts++);
    work.waiting.emplace(now + pause, part);
    return;
  }
}

void lost_extents::advance(storage_work& work, lost_part part, const storage_terms& storage, ledger& changes,
                           round_time now) {
  part.attempts = 0;
  if (std::uint64_t{part.next_key} + keys_at_once < keys_of(part, storage)) {
    part.next_key += keys_at_once;
    work.waiting.emplace(now, part);
  } else if (part.repetitions != 0) {
    const auto delay = part.repetitions == repetitions_of_open ? settings_.quarantine : 9 * settings_.quarantine;
    part.next_key = 0;
    --part.repetitions;
    work.waiting.emplace(now + delay, part);
  } else {
    confirm(part.name, changes);
  }
}

void lost_extents::confirm(const extent_name& name, ledger& changes) {
  const auto extent = extents_.find(name);
  if (--extent->second.storages != 0) return;
  changes.erase_rows(name);
  changes.note(round_work::deletion);
  --state_.instance(name.instance)->lost_extents;
  extents_.erase(extent);
}

std::optional<round_time> lost_extents::next_due() const {
  std::optional<round_time> next;
  for (const auto& [number, work] : storages_) {
    if (work.issued || work.waiting.empty()) continue;
    const round_time due = std::max(work.waiting.begin()->first, work.pause_end);
    next = std::min(due, next.value_or(due));
  }
  return next;
}

}  // namespace cenote::manager
