#include "tiers/block_changes/block_changes.hpp"

namespace cenote {

void block_changes::note(block_place place, const tier_change& change) {
  for (auto& [number, each] : readers_) {
    if (place < each.next) add(each, change);
  }
}

void block_changes::note_move(block_place origin, block_place target, tier_change change) {
  for (auto& [number, each] : readers_) {
    const bool was_named = origin < each.next;
    if (was_named == (target < each.next)) continue;
    change.kind =
        was_named ? tier_change_kind::removed : tier_change_kind::stored;  // removed: its walk comes to it once more
    add(each, change);
  }
}

void block_changes::note_all(const tier_change& change) {
  for (auto& [number, each] : readers_) {
    if (each.next > 0) add(each, change);
  }
}

void block_changes::add(reader_state& reader, const tier_change& change) {
  if (reader.waiting.size() >= most_waiting_) {
    reader = reader_state{};
    return;
  }
  reader.waiting.push_back(change);
  if (reader.waiting.size() == 1 && ring_) ring_();
}

std::optional<change_run> block_changes::read(change_reader reader, std::size_t steps, const block_listing& tier) {
  if (readers_.size() >= most_readers && !readers_.contains(reader)) return std::nullopt;
  reader_state& state = readers_[reader];
  change_run run;
  run.begins_anew = std::exchange(state.begins_anew, false);
  run.changes = std::exchange(state.waiting, {});
  if (state.next != end_of_places) state.next = tier.list(state.next, steps, run.changes);
  run.is_complete = state.next == end_of_places;
  name_subjects(state, run, tier);
  return run;
}

/// Instances that are gone have no subject: nothing of them was ever named to this reader, or all of it has gone.
void block_changes::name_subjects(reader_state& reader, change_run& run, const block_listing& tier) {
  std::optional<std::uint32_t> last;
  for (const tier_change& each : run.changes) {
    if (each.kind == tier_change_kind::ended) {
      reader.named.erase(each.instance);
      last.reset();
    } else if (last != each.instance) {
      last = each.instance;
      if (reader.named.contains(each.instance)) continue;
      auto subject = tier.subject_of(each.instance);
      if (!subject) continue;
      reader.named.insert(each.instance);
      run.subjects.push_back(std::move(*subject));
    }
  }
}

}  // namespace cenote
