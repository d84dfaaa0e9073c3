#include "commands/bench/manager/rows.hpp"

#include <utility>

namespace cenote::bench {

namespace {

constexpr std::uint64_t promised_keys = 1'000'000;  // the promises of times are those of an index of so many
constexpr unsigned turn_rounds = 25;                // between two turns of the program beside

}  // namespace

result<void> row_printer::start_rival(const std::string& program) {
  auto started = rival_program::start(program);
  if (!started) return std::unexpected(started.error());
  rival_.emplace(std::move(*started));
  return {};
}

void row_printer::add(figure measured) {
  if (rival_) {
    waiting_.push_back(std::move(measured));
  } else {
    print(std::move(measured));
  }
}

void row_printer::add_time(std::string_view name, const samples& times, bound promise) {
  add_time(name, times, {}, promise);
}

void row_printer::add_time(std::string_view name, const samples& times, const samples& limit, bound promise) {
  if (keys_ > promised_keys) promise = {};
  add(time_figure("manager", std::string(name), times, limit, microseconds, "us", promise));
}

void row_printer::add_share(std::string_view name, const samples& shares, double least) {
  add(time_figure("manager", std::string(name), shares, {}, 1, "x", {bound::kind::value_at_least, least}));
}

result<void> row_printer::end_round(unsigned round) {
  return rival_ && round % turn_rounds == turn_rounds - 1 ? rival_->take_turn() : result<void>();
}

result<void> row_printer::finish() {
  const auto done = rival_ ? rival_->take_last_turns() : result<void>();
  for (figure& each : waiting_) print_with_rival(std::move(each));
  waiting_.clear();
  return done;
}

void row_printer::print(figure measured) {
  measured.name = std::to_string(keys_) + " keys: " + measured.name;
  out_.add(std::move(measured));
}

void row_printer::print_with_rival(figure measured) {
  const samples* const times = rival_->find(measured.name);
  if (times == nullptr || measured.unit != "us") return print(std::move(measured));
  const double limit = times->median() * microseconds;
  if (!measured.limit) {
    measured.limit = limit;
    return print(std::move(measured));
  }
  figure further = measured;
  further.name += ", beside the program";
  further.limit = limit;
  further.promise = {};
  print(std::move(measured));
  print(std::move(further));
}

result<void> alternate(const row_context& context, const std::function<void(unsigned round)>& prepare,
                       std::span<timed_side> sides) {
  for (unsigned round = 0; round < warm_up_rounds + context.rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    prepare(round);
    for (std::size_t i = 0; i < sides.size(); ++i) {
      timed_side& side = sides[(round + i) % sides.size()];
      const stopwatch time;
      const auto done = side.run();
      const double seconds = time.seconds();
      if (!done) return done;
      if (round >= warm_up_rounds) side.times.add(seconds);
    }
    if (auto turn = context.out.end_round(round); !turn) return turn;
  }
  return {};
}

}  // namespace cenote::bench
