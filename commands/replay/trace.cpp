#include "commands/replay/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>

#include "commands/replay/ctrace_file.hpp"
#include "commands/replay/input.hpp"
#include "commands/replay/request_checks.hpp"
#include "commands/replay/time_scales.hpp"
#include "commands/replay/trace_lines.hpp"

namespace cenote {

namespace {

constexpr double hour_us = 3.6e9;
constexpr std::uint64_t largest_us = 400'000'000'000'000;  // tenths of a second in 32 bits: over twelve years
constexpr std::size_t few = 10;                            // too few requests for a usual rate
constexpr double outlier_gap = 10;                         // times the span of all others
constexpr double us_per_s = 1e6;

using raw_request = formats::line_request;
using time_source = raw_request::time_source;

class reader {
 public:
  reader(const std::string& path, const trace_reading& reading)
      : path_(path), reading_(reading), lines_(path, reading, formats::key_naming::numbered) {}

  result<read_trace> read() {
    const auto from = open_packed_file(path_);
    if (!from) return std::unexpected(from.error());
    if (auto ok = lines_.read(**from); !ok) return std::unexpected(ok.error());
    format_ = lines_.format();
    give_times();
    drop_outliers();
    begin_with_the_first();
    sort();
    replay::join_reads_and_writes(read_);
    judge_rate();
    out_.warnings = lines_.complaints().texts(path_);
    out_.lines = lines_.lines();
    out_.left_out = lines_.left_out();
    if (auto ok = lines_.judge(requests_.size()); !ok) return std::unexpected(ok.error());
    add_all();
    return std::move(out_);
  }

 private:
  void note(std::string_view kind, std::uint64_t line, std::string text) {
    lines_.complaints().note(kind, line, std::move(text));
  }

  // ---- times

  [[nodiscard]] double median_time() const {
    std::vector<double> times;
    times.reserve(requests_.size());
    for (const raw_request& each : requests_) {
      if (each.source == time_source::clock && each.unit == time_unit::automatic) times.push_back(each.time);
    }
    if (times.empty()) return 0;
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::ranges::nth_element(times, middle);
    return *middle;
  }

  /// By an option, or by the format.
  [[nodiscard]] time_unit given_unit() const { return replay::given_unit(reading_.unit, format_); }
  [[nodiscard]] bool is_given() const { return given_unit() != time_unit::automatic; }

  void give_times() {
    const replay::time_scale* const guessed = replay::scale_since_1970(median_time());
    const replay::time_scale& usual =
        is_given() ? replay::scale_of(given_unit())
                   : *(guessed != nullptr ? guessed : &replay::scale_of(time_unit::milliseconds));
    for (raw_request& each : requests_) each.time_us = replay::microseconds_of(each, usual);
    is_absolute_ = is_since_1970();
    drop_untimed();
    follow_delays();
    if (is_given() || guessed == nullptr || requests_.empty()) return;
    note("since 1970", requests_.front().line, replay::since_1970_remark(*guessed));
  }

  [[nodiscard]] bool is_since_1970() const {
    constexpr double since_us = 1e15;
    std::vector<std::uint64_t> times;
    for (const raw_request& each : requests_) {
      if (each.source == time_source::clock) times.push_back(each.time_us);
    }
    if (times.empty()) return false;
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::ranges::nth_element(times, middle);
    const auto median = static_cast<double>(*middle);
    return median >= since_us && median < 5 * since_us;
  }

  /// A trace without times runs in the order of its lines. Where others have one, a line without is a bad one.
  void drop_untimed() {
    const auto is_timed = [](const raw_request& each) { return each.source != time_source::none; };
    if (std::ranges::none_of(requests_, is_timed)) return;
    std::erase_if(requests_, [&](const raw_request& request) {
      if (is_timed(request)) return false;
      lines_.leave_out("`timestamp` is missing", request.line, "`timestamp` is missing");
      return true;
    });
  }

  void follow_delays() {
    if (std::ranges::none_of(requests_, [](const auto& each) { return each.source == time_source::delay; })) return;
    std::unordered_map<std::uint32_t, std::uint64_t> latest;  // by session
    for (raw_request& each : requests_) {
      std::uint64_t& turn_us = latest[each.session];
      if (each.source == time_source::delay) each.time_us = turn_us + static_cast<std::uint64_t>(each.time * 1e3);
      turn_us = each.time_us;
    }
  }

  /// A few requests whose distance to all others is many times the span of those would leave nothing of it.
  void drop_outliers() {
    if (requests_.size() < few) return;
    std::vector<std::uint64_t> times;
    times.reserve(requests_.size());
    for (const raw_request& each : requests_) times.push_back(each.time_us);
    std::ranges::sort(times);
    const std::size_t most = std::max<std::size_t>(1, times.size() / 100);
    std::uint64_t low = times.front();
    std::uint64_t high = times.back();
    const auto is_far = [](std::uint64_t gap, std::uint64_t span) {
      return static_cast<double>(gap) > std::max(hour_us, outlier_gap * static_cast<double>(span));
    };
    for (std::size_t i = 1; i <= most; ++i) {
      const std::uint64_t inner = times[times.size() - 1 - i];
      if (is_far(times[times.size() - i] - inner, inner - times[most])) high = std::min(high, inner);
      if (is_far(times[i] - times[i - 1], times[times.size() - 1 - most] - times[i])) low = std::max(low, times[i]);
    }
    drop(low, high, "outlier", "`timestamp` is far from all others");
  }

  void begin_with_the_first() {
    if (requests_.empty()) return;
    const std::uint64_t start = is_absolute_ ? std::ranges::min(requests_, {}, &raw_request::time_us).time_us : 0;
    drop(start, start + largest_us, "far", "`timestamp` is more than twelve years after the start");
    for (raw_request& each : requests_) each.time_us -= start;
  }

  void drop(std::uint64_t low, std::uint64_t high, std::string_view kind, std::string_view text) {
    std::erase_if(requests_, [&](const raw_request& request) {
      if (request.time_us >= low && request.time_us <= high) return false;
      lines_.leave_out(kind, request.line, std::string(text));
      return true;
    });
  }

  void sort() {
    std::uint64_t latest = 0;
    std::uint64_t last_line = 0;
    bool sorted = true;
    for (const raw_request& each : requests_) {
      if (each.time_us < latest) sorted = false;
      const bool is_delayed = each.source == time_source::delay;
      // A request behind that of a later line was put there.
      if (each.time_us < latest && each.line >= last_line && !is_delayed) {
        note("unsorted", each.line, "time goes back here; the requests are put in the order of their times");
      }
      latest = std::max(latest, each.time_us);
      last_line = std::max(last_line, each.line);
    }
    if (!sorted) std::ranges::stable_sort(requests_, {}, &raw_request::time_us);
  }

  void judge_rate() {
    if (requests_.empty() || is_given() || is_absolute_) return;
    replay::guessed_times times;
    for (const raw_request& each : requests_) times.add(each);
    times.seconds = static_cast<double>(requests_.back().time_us - requests_.front().time_us) / us_per_s;
    if (auto text = times.remark()) note("rate", requests_.front().line, std::move(*text));
  }

  // ---- the end

  void add_all() {
    constexpr std::uint64_t us_per_ms = 1000;
    if (reading_.most != 0 && reading_.most < requests_.size()) requests_.resize(reading_.most);
    std::vector<simulation::trace::arrival> arrivals;
    arrivals.reserve(requests_.size());
    for (const raw_request& each : requests_) {
      arrivals.push_back({.time_ms = each.time_us / us_per_ms,
                          .tokens = each.tokens,
                          .count = each.count,
                          .access = each.access,
                          .instance = each.instance,
                          .session = each.session,
                          .engine_blocks = each.engine_blocks});
    }
    out_.requests = simulation::trace(arrivals, ids_in_order(), read_.block_tokens);
    out_.instances = std::move(read_.instances);
    if (format_ != nullptr) out_.format = format_->name;
  }

  /// Those of all requests, one after the other: mostly as they were read.
  huge_vector<std::uint64_t> ids_in_order() {
    std::size_t size = 0;
    bool in_order = true;
    for (const raw_request& each : requests_) {
      in_order = in_order && each.first == size;
      size += each.count;
    }
    if (in_order) {
      ids_.resize(size);
      return std::move(ids_);
    }
    huge_vector<std::uint64_t> ids;
    ids.reserve(size);
    for (const raw_request& each : requests_) {
      const auto first = ids_.begin() + static_cast<std::ptrdiff_t>(each.first);
      ids.insert(ids.end(), first, first + static_cast<std::ptrdiff_t>(each.count));
    }
    return ids;
  }

  const std::string& path_;
  const trace_reading& reading_;
  replay::trace_lines lines_;
  const formats::format* format_ = nullptr;  ///< none where no line was recognized
  formats::line_requests& read_ = lines_.requests();
  std::vector<raw_request>& requests_ = read_.requests;
  huge_vector<std::uint64_t>& ids_ = read_.ids;
  bool is_absolute_ = false;
  read_trace out_;
};

}  // namespace

const std::map<std::string, time_unit>& time_units() {
  static const auto named = [] {
    std::map<std::string, time_unit> all{{"auto", time_unit::automatic}};
    for (const replay::time_scale& each : replay::time_scales()) all.emplace(each.option, each.unit);
    return all;
  }();
  return named;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names{"auto"};
  for (const auto& each : formats::table()) names.emplace_back(each.name);
  names.emplace_back(own_format);
  return names;
}

result<void> check_format(const std::string& path, const trace_reading& reading) {
  if (replay::is_ctrace_file(path)) return {};
  if (reading.format == own_format) {
    return fail(error_code::malformed, fmt::format("{} is no .ctrace file; --format auto tells what it is", path));
  }
  if (!reading.format.empty() && reading.format != "auto" && formats::find(reading.format) == nullptr) {
    return fail(error_code::invalid_argument, fmt::format("unknown format `{}`", reading.format));
  }
  return {};
}

result<read_trace> read_trace_file(const std::string& path, const trace_reading& reading) {
  if (auto ok = check_format(path, reading); !ok) return std::unexpected(ok.error());
  if (replay::is_ctrace_file(path)) return replay::read_ctrace_file(path, reading);
  reader one(path, reading);
  return one.read();
}

}  // namespace cenote
