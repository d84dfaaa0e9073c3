#include "tiers/remote/removals.hpp"

#include <algorithm>
#include <iterator>

namespace cenote::remote {

removals::removals(removal_book& book, cluster::recent_removals& keys, hooks hooks_in, steady_time now)
    : book_(book), keys_(keys), hooks_(std::move(hooks_in)) {
  for (const auto& [number, each] : book_.orders()) keys_.begin(each.identity, each.keys, now);
}

std::uint64_t removals::begin(round begun_round, steady_time now) {
  keys_.begin(begun_round.order.identity, begun_round.order.keys, now);
  begun_round.order.sequence = next_number_;
  rounds_.emplace(next_number_, std::move(begun_round));
  return next_number_++;
}

removals::round* removals::find(std::uint64_t number) noexcept {
  const auto found = rounds_.find(number);
  return found == rounds_.end() ? nullptr : &found->second;
}

/// A removal that is not confirmed by all is not done: it stands in the book, and its keys are kept from use, until a
/// round of it is.
void removals::end(std::uint64_t number, steady_time now) {
  auto ended = rounds_.extract(number);
  if (ended.empty()) return;
  round& over = ended.mapped();
  const bool is_done = over.order.nodes.empty();
  const bool is_pending = !is_done || !over.reason.empty();
  end_keys(over.order, now);
  if (is_done && book_.find(over.repeats) != nullptr) end_keys(over.order, now);  // also as one that waits
  const bool was_waiting = !book_.orders().empty();
  if (over.repeats != 0)
    book_.keep(over.repeats, over.order.nodes);  // another one may have its place
  else if (!is_done)
    add(over.order, now);
  if (was_waiting && book_.orders().empty()) note("removals that waited are confirmed", "pending", "0");
  if (!over.answer) return;
  if (is_pending) {
    unsaved_answers_.emplace_back(
        [answer = std::move(over.answer), why = text_of(over)] { answer(fail(error_code::removal_pending, why)); });
  } else {
    due_answers_.emplace_back([answer = std::move(over.answer), removed = over.removed] { answer(removed); });
  }
}

std::string removals::text_of(const round& outcome) const {
  std::string text = outcome.reason;
  for (const std::string& each : outcome.order.nodes) {
    const bool is_first = &each == &*outcome.order.nodes.begin();
    text += (is_first && !text.empty() ? "; " : "") + std::string(is_first ? "not confirmed by " : ", ") + each;
  }
  return text + "; " + std::to_string(book_.orders().size()) + " removals wait";
}

/// A round, or an order that waits, is over: a place may have its commands for a lag.
void removals::end_keys(const removal_book::open_removal& order, steady_time now) {
  keys_.end(order.identity, order.keys, now + hooks_.lag, now);
}

/// Its keys stay removed until it is confirmed, those of an order that another one replaces no longer than usual.
void removals::add(removal_book::open_removal order, steady_time now) {
  if (book_.orders().empty()) repeats_at_ = now + repeat_pause;
  const std::uint64_t dropped = book_.dropped(), forced_clears = book_.forced_clears();
  keys_.begin(order.identity, order.keys, now);
  book_.add(std::move(order), hooks_.next_clear);
  for (const auto& each : book_.take_replaced()) end_keys(each, now);
  note_bound(book_.dropped() - dropped, book_.forced_clears() - forced_clears, now);
}

/// A node that is away for long may fill it with every removal.
void removals::note_bound(std::uint64_t dropped, std::uint64_t forced_clears, steady_time now) {
  if ((dropped == 0 && forced_clears == 0) || now < notes_bound_at_) return;
  notes_bound_at_ = now + bound_pause;
  if (dropped != 0)
    note("too many removals wait: one is not asked for again, and copies may remain", "dropped",
         std::to_string(book_.dropped()));
  else
    note("too many removals wait: all of the instance that has most is cleared in their place", "clears",
         std::to_string(book_.forced_clears()));
}

std::vector<removals::round> removals::take_due(
    steady_time now, const std::function<bool(const removal_book::open_removal&)>& is_useful) {
  std::vector<round> due;
  if (now < repeats_at_ || book_.orders().empty()) return due;
  repeats_at_ = now + repeat_pause;
  for (const auto& [number, each] : book_.orders()) {
    const bool is_begun = std::ranges::any_of(rounds_, [&](const auto& open) { return open.second.repeats == number; });
    if (!is_begun && is_useful(each)) due.push_back({.order = each, .repeats = number});
  }
  repeated_ += due.size();
  return due;
}

bool removals::save(steady_time now, std::uint64_t record_changes) {
  const bool is_changed = book_.is_changed() || saved_changes_ != record_changes;
  waits_for_save_ = is_changed;
  if (is_changed && now < saves_at_) return false;
  if (is_changed) write(now, record_changes);
  std::ranges::move(std::exchange(unsaved_answers_, {}), std::back_inserter(due_answers_));
  return is_changed;
}

void removals::give_answers() {
  for (const auto& each : std::exchange(due_answers_, {})) each();
}

/// Removals that cannot be written are answered all the same; the log has it once.
void removals::write(steady_time now, std::uint64_t record_changes) {
  auto [clears, departures] = hooks_.copy_records();
  const auto written = book_.write(std::move(clears), std::move(departures));
  waits_for_save_ = !written;
  saves_at_ = now + (written ? steady_time::duration(save_pause) : steady_time::duration(repeat_pause));
  if (written) {
    saved_changes_ = record_changes;
    if (std::exchange(is_unsaved_, false))
      note("removals that wait are kept again", "pending", std::to_string(book_.orders().size()));
    return;
  }
  ++failed_saves_;
  if (!std::exchange(is_unsaved_, true))
    note("removals that wait are not kept over a restart until the file can be written", "reason",
         written.error().describe());
}

void removals::note(std::string_view event, std::string_view field, const std::string& value) const {
  if (hooks_.notice) hooks_.notice(std::string(event), std::string(field), value);
}

void removals::stop() {
  for (auto& [number, each] : std::exchange(rounds_, {})) {
    if (each.answer) each.answer(fail(error_code::closed, "this node stops"));
  }
  std::ranges::move(std::exchange(unsaved_answers_, {}), std::back_inserter(due_answers_));
  give_answers();
}

steady_time removals::next() const noexcept {
  const auto repeat = book_.orders().empty() ? steady_time::max() : repeats_at_;
  return std::min(repeat, waits_for_save_ ? saves_at_ : steady_time::max());
}

removal_figures removals::figures() const noexcept {
  return {.unconfirmed = book_.orders().size(),
          .repeated = repeated_,
          .dropped = book_.dropped(),
          .failed_saves = failed_saves_};
}

}  // namespace cenote::remote
