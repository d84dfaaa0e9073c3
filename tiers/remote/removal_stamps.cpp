#include "tiers/remote/removal_stamps.hpp"

#include "core/random_number.hpp"

namespace cenote::remote {

/// Of 16 digits, as epochs: never 0.
removal_stamps::stamp removal_stamps::make_for_look() noexcept {
  return (random_number() >> 2U) * 2 + 2;
}

/// No other node has removed anything since the last sight: the stamp is the one of then, or the server is another
/// process and has none, or only one that a look has made.
bool removal_stamps::is_undisturbed(const instance_identity& identity, stamp number) const noexcept {
  const auto found = sights_.find(identity);
  if (found == sights_.end()) return false;
  const sight& last = found->second;
  const bool has_lost = !run_.empty() && !last.run.empty() && run_ != last.run && !has_evicted_;
  return number == last.number || (has_lost && number % 2 == 0);
}

void removal_stamps::note(const instance_identity& identity, stamp predecessor, stamp successor, steady_time now) {
  const bool is_as_before = is_undisturbed(identity, predecessor);
  if (sights_.size() >= most_instances && !sights_.contains(identity)) sights_.clear();
  sight& last = sights_[identity];
  if (!is_as_before) last.quiet_start = now;
  last.number = successor;
  last.run = run_;
}

void removal_stamps::note_look(const instance_identity& identity, stamp number, steady_time now) {
  note(identity, number, number, now);
}

void removal_stamps::note_removal(const instance_identity& identity, stamp predecessor, stamp successor,
                                  steady_time now) {
  note(identity, predecessor, successor, now);
}

std::optional<removal_stamps::stamp> removal_stamps::valid_stamp(const instance_identity& identity,
                                                                 steady_time missed) const noexcept {
  const auto last = sights_.find(identity);
  if (last == sights_.end() || last->second.quiet_start > missed) return std::nullopt;
  return last->second.number;
}

}  // namespace cenote::remote
