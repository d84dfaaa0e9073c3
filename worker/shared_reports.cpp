#include "worker/shared_reports.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "actors/ask.hpp"
#include "config/logging.hpp"

namespace cenote {

namespace {

constexpr auto round_deadline = std::chrono::seconds(6);  // the actors' own are shorter
constexpr auto longest_pause = std::chrono::milliseconds(250);

}  // namespace

shared_reports::shared_reports(caf::actor_system& system, node_actor node,
                               const std::shared_ptr<local::event_loop>& loop)
    : system_(system), node_(std::move(node)), loop_(loop), pause_(loop, [this] { begin(); }), deadline_(loop, [this] {
        end(turn_, fail(error_code::deadline_exceeded, "the node is too busy to answer"));
      }) {}

void shared_reports::want(hearer who) {
  waiting_.push_back(std::move(who));
  begin();
}

void shared_reports::begin() {
  if (under_way_ || waiting_.empty()) return;
  if (clock::now() < next_) return pause_.set(next_);
  under_way_ = true;
  begun_ = clock::now();
  served_ = std::exchange(waiting_, {});
  const std::uint64_t turn = ++turn_;
  ask_then<report_ptr>(
      system_, [] { return true; },
      [this, turn, where = loop_](const result<report_ptr>& report) {
        if (const auto still = where.lock()) still->post([this, turn, report] { end(turn, report); });
      },
      node_, report_atom_v);
  deadline_.set(begun_ + round_deadline);
}

void shared_reports::end(std::uint64_t turn, const result<report_ptr>& report) {
  if (!under_way_ || turn != turn_) return;  // the other of answer and deadline was first
  under_way_ = false;
  deadline_.cancel();
  const auto now = clock::now();
  next_ = now + std::min<clock::duration>(3 * (now - begun_), longest_pause);
  for (const hearer& each : std::exchange(served_, {})) {
    try {
      each(report);
    } catch (const std::exception& why) {  // the others hear theirs, and those who wait have their turn
      log_error(logger("server"), "a report was not answered", {{"reason", why.what()}});
    }
  }
  begin();
}

}  // namespace cenote
