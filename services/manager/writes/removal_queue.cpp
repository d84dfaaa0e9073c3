#include "services/manager/writes/removal_queue.hpp"

#include <algorithm>
#include <bit>

#include "services/manager/writes/block_site.hpp"
#include "services/manager/writes/removal_pause.hpp"

namespace cenote::manager {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t blocks_at_once = 4'096;
constexpr std::chrono::milliseconds credit_pause =
    10ms;  ///< until a storage with all its batches under way is looked at again

}  // namespace

extent_state* removal_queue::extent_of(const due_removal& removal) const {
  instance_state* const instance = state_.instance(removal.instance);
  extent_state* const extent = instance == nullptr ? nullptr : instance->extent(removal.table);
  return extent != nullptr && extent->name.extent == removal.extent ? extent : nullptr;
}

bool removal_queue::is_last_of_file(const extent_state& extent, std::uint32_t position, std::uint32_t blocks_per_file) {
  if (blocks_per_file <= 1) return true;
  const std::size_t first = position / blocks_per_file * std::size_t{blocks_per_file};
  const std::size_t end = std::min(first + blocks_per_file, extent.states.size());
  for (std::size_t i = first; i < end; ++i) {
    const location_state state = extent.states[i];
    if (state != location_state::none && (state != location_state::deleting || !extent.issued[i])) return false;
  }
  return true;
}

void removal_queue::repeat_later(const extent_state& extent, const std::vector<removal_item>& items, round_time now) {
  const bool is_given_up = extent.is_open || extent.finish_mark == 0;
  if (!is_given_up || repeated_ + 2 * items.size() > most_repeated) return;
  repeated_removal removal{.storage = extent.storage};
  for (const removal_item& item : items) {
    if (item.scope == removal_scope::whole) removal.items.push_back(item);
  }
  if (removal.items.empty()) return;
  repeated_ += 2 * removal.items.size();
  removal.due = now + settings_.quarantine;
  first_.push_back(removal);
  removal.due = now + 10 * settings_.quarantine;
  second_.push_back(std::move(removal));
}

void removal_queue::issue_repeated(round_time now) {
  for (auto* const removals : {&first_, &second_}) {
    while (!removals->empty() && removals->front().due <= now) {
      repeated_removal& removal = removals->front();
      repeated_ -= removal.items.size();
      storage_state* const storage = state_.storages[removal.storage].get();
      if (storage != nullptr && storage->worker != nullptr)
        storage->worker->remove({.items = std::move(removal.items)});
      removals->pop_front();
    }
  }
}

void removal_queue::issue_range(const due_removal& removal, extent_state& extent, storage_state& storage,
                                round_time now) {
  const instance_state& instance = *state_.instance(removal.instance);
  if (extent.issued.empty()) extent.issued.resize(extent.states.size());
  const auto each_block = [&](const auto& visit) {
    for (std::uint32_t i = removal.first; i < removal.first + removal.count; ++i) {
      if (extent.states[i] == location_state::deleting) visit(i);
    }
  };
  each_block([&](std::uint32_t position) { extent.issued[position] = true; });
  issued_batch batch{.storage = extent.storage, .worker = storage.worker_number};
  removal_batch request{.number = next_batch_++};
  each_block([&](std::uint32_t position) {
    const std::size_t items = request.items.size();
    const removal_scope scope =
        is_last_of_file(extent, position, storage.terms->blocks_per_file) ? removal_scope::whole : removal_scope::part;
    add_removal_items({.instance = instance, .storage = *storage.terms, .extent = extent, .position = position}, scope,
                      request.items);
    batch.blocks.push_back(
        {.removal = removal, .position = position, .items = static_cast<std::uint32_t>(request.items.size() - items)});
  });
  if (batch.blocks.empty()) return;
  repeat_later(extent, request.items, now);
  ++storage.batches;
  issued_.emplace(request.number, std::move(batch));
  storage.worker->remove(std::move(request));
}

storage_state* removal_queue::storage_of(const issued_batch& batch) const noexcept {
  storage_state* const storage = state_.storages[batch.storage].get();
  return storage != nullptr && storage->worker_number == batch.worker ? storage : nullptr;
}

void removal_queue::drop_unanswered() {
  if (worker_changes_ == state_.worker_changes) return;
  worker_changes_ = state_.worker_changes;
  std::erase_if(issued_, [this](const auto& batch) { return storage_of(batch.second) == nullptr; });
}

void removal_queue::issue(ledger& changes, round_time now) {
  drop_unanswered();
  issue_repeated(now);
  extents_.issue(changes, now);
  std::size_t blocks = 0;
  while (!waiting_.empty() && waiting_.top().due <= now && blocks < blocks_at_once) {
    due_removal removal = waiting_.top();
    waiting_.pop();
    extent_state* const extent = extent_of(removal);
    if (extent == nullptr) continue;  // forgotten meanwhile
    storage_state* const storage = state_.storages[extent->storage].get();
    if (storage == nullptr) continue;
    if (storage->worker == nullptr || storage->batches >= most_batches) {
      removal.due = now + (storage->worker == nullptr ? longest_removal_pause : credit_pause);
      waiting_.push(removal);
      continue;
    }
    if (removal.count > batch_blocks) {
      due_removal rest = removal;
      rest.first += batch_blocks;
      rest.count -= batch_blocks;
      waiting_.push(rest);
      removal.count = batch_blocks;
    }
    blocks += removal.count;
    issue_range(removal, *extent, *storage, now);
  }
}

void removal_queue::complete(const removal_outcome& outcome, ledger& changes, round_time now) {
  const auto batch = issued_.find(outcome.number);
  if (batch == issued_.end()) return extents_.complete(outcome, changes, now);
  storage_state* const storage = storage_of(batch->second);
  if (storage != nullptr) --storage->batches;
  std::size_t item = 0;
  for (const issued_block& block : batch->second.blocks) {
    const auto first = outcome.failures.begin() + static_cast<std::ptrdiff_t>(item);
    const bool has_failed = std::any_of(first, first + block.items, [](const auto& text) { return !text.empty(); });
    item += block.items;
    extent_state* const extent = extent_of(block.removal);
    if (extent == nullptr || extent->states[block.position] != location_state::deleting) continue;
    if (!has_failed) {
      changes.set_state(*state_.instance(block.removal.instance), *extent, block.position, location_state::none);
      changes.note(round_work::deletion);
      continue;
    }
    if (storage != nullptr) ++storage->failed_deletions;
    due_removal again = block.removal;
    again.due = now + removal_pause(again.attempts++);
    again.first = block.position;
    again.count = 1;
    waiting_.push(again);
  }
  issued_.erase(batch);
}

std::optional<round_time> removal_queue::next_due() const {
  const auto due = extents_.next_due();
  if (waiting_.empty()) return due;
  return std::min(waiting_.top().due, due.value_or(waiting_.top().due));
}

}  // namespace cenote::manager
