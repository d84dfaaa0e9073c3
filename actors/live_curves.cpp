#include "actors/live_curves.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/units.hpp"

namespace cenote {

namespace {

constexpr double half_life = 50'000;    // requests
constexpr int points_of_an_octave = 3;  // powers of two of the capacity
constexpr int octaves = 4;              // to either side
constexpr std::uint64_t largest_factor = 4;
constexpr std::uint64_t step_share = 4;  // a step of a gain is at most so small a part of the capacity
constexpr std::array shares{0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.995};

}  // namespace

live_curve::live_curve(std::uint64_t room)
    : curve_({.largest = std::max<std::uint64_t>(room * largest_factor, simulation::sampled_curve::usual_sampled),
              .half_life = half_life,
              .salt = 1}) {}

void live_curve::describe(blocks::curve_status& status, std::uint64_t nvme_bytes) const {
  status.requests = curve_.requests();
  const auto present = static_cast<double>(status.capacity);
  std::uint64_t last = 0;
  for (int i = -octaves * points_of_an_octave; i <= octaves * points_of_an_octave; ++i) {
    const auto capacity =
        static_cast<std::uint64_t>(std::llround(present * std::exp2(static_cast<double>(i) / points_of_an_octave)));
    if (capacity <= last) continue;
    const auto point = curve_.estimate(capacity);
    if (!point) continue;
    status.points.push_back({point->capacity, point->miss_ratio, point->error});
    last = capacity;
  }
  add_shares(status);
  add_gain(status, "dram", status.capacity);
  if (nvme_bytes > 0 && status.block_bytes > 0)
    add_gain(status, "nvme", status.capacity + nvme_bytes / status.block_bytes);
}

void live_curve::add_shares(blocks::curve_status& status) const {
  const auto largest = curve_.estimate(curve_.largest());
  if (!largest || largest->miss_ratio >= 1) return;
  const double reachable = 1 - largest->miss_ratio;
  for (const double share : shares) {
    if (const auto point = curve_.smallest_with(share * reachable, 1, curve_.largest())) {
      status.shares.push_back({share, point->capacity});
    }
  }
}

/// The step is a GiB, or a part of the capacity where that is less, so that a gain of a small tier is no leap.
void live_curve::add_gain(blocks::curve_status& status, std::string_view tier, std::uint64_t capacity) const {
  if (status.block_bytes == 0 || capacity == 0) return;
  const std::uint64_t step =
      std::clamp<std::uint64_t>(GiB / status.block_bytes, 1, std::max<std::uint64_t>(1, capacity / step_share));
  const auto present = curve_.estimate(capacity);
  const auto larger = curve_.estimate(capacity + step);
  if (!present || !larger) return;
  const double more = std::max(0.0, present->miss_ratio - larger->miss_ratio);
  const double steps = static_cast<double>(GiB) / static_cast<double>(step * status.block_bytes);
  // The requests that hit at the one and miss at the other are a part of those that miss.
  const double error = present->miss_ratio > 0 ? present->error * std::sqrt(more / present->miss_ratio) : 0;
  status.gains.push_back({std::string(tier), more * steps, error * steps});
}

void live_curve_set::add(const blocks::watched_request& request) {
  auto found = curves_.find(request.instance);
  if (found == curves_.end()) {
    if (curves_.size() >= blocks::most_watched) {
      curves_.erase(std::ranges::min_element(curves_, {}, [](const auto& each) { return each.second.used; }));
    }
    found = curves_.emplace(request.instance, live_instance{.curve = live_curve(request.room)}).first;
  }
  found->second.used = ++requests_;
  found->second.curve.add(request.ids);
}

std::vector<blocks::curve_status> live_curve_set::report(const blocks::store_status& tier) {
  std::vector<blocks::curve_status> all;
  for (const blocks::instance_status& each : tier.instances) {
    if (each.curve) all.push_back(*each.curve);
  }
  std::erase_if(curves_, [&](const auto& each) {
    return std::ranges::find(all, each.first, &blocks::curve_status::instance) == all.end();
  });
  for (blocks::curve_status& each : all) {
    if (const auto found = curves_.find(each.instance); found != curves_.end())
      found->second.curve.describe(each, nvme_bytes_);
  }
  return all;
}

bool watched_limit::admit(const watched_batch& batch) noexcept {
  if (blocks_.load(std::memory_order_relaxed) >= most_blocks) {
    dropped_.fetch_add(batch.requests.size(), std::memory_order_relaxed);
    return false;
  }
  blocks_.fetch_add(batch.blocks, std::memory_order_relaxed);
  return true;
}

void watched_limit::arrived(const watched_batch& batch) noexcept {
  blocks_.fetch_sub(batch.blocks, std::memory_order_relaxed);
}

live_curves::live_curves(caf::actor_config& config, std::shared_ptr<watched_limit> limit, std::uint64_t nvme_bytes)
    : live_curves_actor::base(config), limit_(std::move(limit)), curves_(nvme_bytes) {}

live_curves::behavior_type live_curves::make_behavior() {
  return {
      [this](watched_atom, const watched_ptr& batch) {
        for (const blocks::watched_request& each : batch->requests) {
          if (each.room != 0) curves_.add(each);
        }
        recording_.add(*batch, std::chrono::steady_clock::now());
        limit_->arrived(*batch);
      },
      [this](record_atom) -> recorded_ptr {
        return std::make_shared<const recorded_batch>(
            recording_.begin(limit_->dropped(), std::chrono::steady_clock::now()));
      },
      [this](record_atom, std::uint64_t number) -> recorded_ptr {
        return std::make_shared<const recorded_batch>(
            recording_.take(number, limit_->dropped(), std::chrono::steady_clock::now()));
      },
      [this](end_record_atom, std::uint64_t number) { recording_.end(number); },
      [this](report_atom, const dram_report_ptr& tier) -> curves_report_ptr {
        return std::make_shared<const curves_report>(
            curves_report{.curves = curves_.report(tier->store), .figures = {.dropped = limit_->dropped()}});
      },
  };
}

std::function<void(std::vector<blocks::watched_request>)> watched_teller(live_curves_actor curves,
                                                                         std::shared_ptr<watched_limit> limit) {
  return [curves = std::move(curves), limit = std::move(limit)](std::vector<blocks::watched_request> requests) {
    auto batch = std::make_shared<watched_batch>();
    batch->requests = std::move(requests);
    for (const blocks::watched_request& each : batch->requests) batch->blocks += each.ids.size();
    if (limit->admit(*batch)) caf::anon_send(curves, watched_atom_v, watched_ptr(std::move(batch)));
  };
}

}  // namespace cenote
