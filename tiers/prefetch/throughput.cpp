#include "tiers/prefetch/throughput.hpp"

#include <algorithm>

namespace cenote::prefetch {

namespace {

constexpr double slice_seconds = 0.02;
constexpr double short_slice_seconds = 0.002;  // enough where many blocks came
constexpr double slice_blocks = 8;
constexpr std::uint64_t window_loads = 8;
constexpr nanoseconds window_time = std::chrono::milliseconds(50);
constexpr nanoseconds slices_together = std::chrono::seconds(1);  // older ones do not speak against newer ones
constexpr double reports_late = 0.001;                            // ends are reported in batches
constexpr double newest_counts = 0.3;                             // of latencies
constexpr double outlier = 4;  // times the latency known so far, or the other gaps; more is a pause of the device
constexpr double least_pause = 0.02;  // seconds

}  // namespace

void throughput::slice::add_gap(double bytes, double duration) noexcept {
  net_bytes += bytes;
  net_seconds += duration;
  longest_gap = std::max(longest_gap, duration);
}

/// At most half of the time counts as latency: where all that was under way comes at once, it says little of bandwidth.
double throughput::slice::rate() const noexcept {
  if (gross_seconds <= 0) return 0;
  const double most = 2 * gross_bytes / gross_seconds;
  return net_seconds > 0 ? std::min(most, net_bytes / net_seconds) : most;
}

void throughput::started(std::uint64_t bytes, time_point now) noexcept {
  if (under_way_ == 0) {
    progress_ = now;
    period_ = {.begin = now, .first_end = now, .loads = 0, .first_bytes = 0};
  }
  under_way_ += bytes;
  block_ = static_cast<double>(bytes);
}

void throughput::renew(time_point now) noexcept {
  renewed_ = now;
  if (open_.gross_bytes > 0) close_slice(measured_);
  open_ = {};
}

void throughput::ended(std::uint64_t bytes, std::uint64_t good, time_point now, std::uint64_t loads) noexcept {
  // Ends that are reported together with the start have taken some time all the same.
  count(bytes, good, loads, std::max(seconds_of(now - progress_), 1e-7), now);
  under_way_ -= std::min(bytes, under_way_);
  progress_ = now;
}

void throughput::count(std::uint64_t bytes, std::uint64_t good, std::uint64_t loads, double took,
                       time_point now) noexcept {
  const double came = static_cast<double>(good);
  const std::uint64_t loads_before = period_.loads;
  period_.loads += loads;
  if (open_.gross_seconds == 0) open_.begin = progress_;
  open_.gross_bytes += came;
  open_.gross_seconds += took;
  if (loads_before == 0) {
    period_.first_end = now;
    period_.first_bytes = static_cast<double>(bytes);
  } else {
    open_.add_gap(came, took);
  }
  if (good == 0) return;
  measured_ = now;
  measured_once_ = true;
  const bool is_window = period_.loads >= window_loads || now - period_.first_end >= window_time;
  if (is_window) windowed_ = now;
  const bool enough = open_.gross_bytes >= slice_blocks * block_ && open_.gross_seconds >= short_slice_seconds;
  if (enough || open_.gross_seconds >= slice_seconds) close_slice(now);
  rate_ = median_rate();
  const bool is_last = bytes >= under_way_;
  if ((loads_before < window_loads && is_window) || (is_last && loads_before < window_loads)) learn_latency();
}

void throughput::close_slice(time_point now) noexcept {
  open_.at = now;
  if (!open_.is_strong()) {
    weak_ = open_;
  } else if (is_doubtful(open_) && !doubted_) {
    doubted_ = open_;
  } else {
    if (doubted_ && is_doubtful(open_)) keep(*doubted_);
    doubted_.reset();
    keep(open_);
  }
  open_ = {};
}

void throughput::keep(const slice& measured) noexcept {
  strong_[next_] = measured;
  next_ = (next_ + 1) % strong_.size();
}

/// One gap makes it far slower than the known rate: the machine may have stood still. A slow device that serves several
/// loads at a time has such gaps as well, but in each slice.
bool throughput::is_doubtful(const slice& measured) const noexcept {
  return measured.longest_gap >= least_pause && outlier * measured.rate() < rate_ &&
         measured.longest_gap > outlier * (measured.net_seconds - measured.longest_gap);
}

double throughput::median_rate() const noexcept {
  std::array<double, 6> rates{};
  std::size_t count = 0;
  // What is measured since the last renewal speaks alone, as soon as there is some.
  const bool open_counts = open_.is_strong() && open_.net_bytes >= (slice_blocks - 1) * block_;
  time_point newest = open_counts ? open_.begin : time_point{};
  for (const slice& each : strong_) newest = std::max(newest, each.begin);
  const time_point oldest =
      newest >= renewed_ ? std::max(renewed_, newest - slices_together) : newest - slices_together;
  for (const slice& each : strong_) {
    if (each.gross_seconds > 0 && each.begin >= oldest) rates[count++] = each.rate();
  }
  if (open_counts) rates[count++] = open_.rate();
  if (count == 0) return open_.gross_bytes > 0 ? open_.rate() : weak_.rate();
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>((count - 1) / 2);
  std::nth_element(rates.begin(), middle, rates.begin() + static_cast<std::ptrdiff_t>(count));
  return *middle;
}

/// From the first end of the period, less the time that its bytes took.
void throughput::learn_latency() noexcept {
  if (rate_ <= 0) return;
  double took = seconds_of(period_.first_end - period_.begin) - period_.first_bytes / rate_;
  took = std::max(took, 0.0);
  if (outlier * took < latency_) {  // what was known was a pause
    latency_ /= outlier;
    return;
  }
  if (latency_ > 0) took = std::min(took, std::max(outlier * latency_, reports_late));
  latency_ = latency_ > 0 ? (1 - newest_counts) * latency_ + newest_counts * took : took;
}

bool throughput::is_proven(time_point now) const noexcept {
  return rate_ > 0 && windowed_ != time_point{} && now - windowed_ <= proof;
}

std::optional<nanoseconds> throughput::age(time_point now) const noexcept {
  if (!measured_once_) return std::nullopt;
  return std::max(now - measured_, nanoseconds(0));
}

std::optional<forecast> throughput::estimate(time_point now) const noexcept {
  if (rate_ <= 0 || now - measured_ > memory) return std::nullopt;
  forecast made{.delay = latency_, .bytes_per_s = rate_};
  if (under_way_ == 0) return made;
  const double silence = seconds_of(now - progress_);
  made.delay = period_.loads == 0 ? std::max(0.0, latency_ - silence) : 0.0;
  const double expected = latency_ + 2 * block_ / rate_ + reports_late;
  if (silence <= expected) return made;
  made.delay += silence - expected;
  made.bytes_per_s = std::min(rate_, static_cast<double>(under_way_) / silence);
  return made;
}

}  // namespace cenote::prefetch
