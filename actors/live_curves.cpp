#include "actors/live_curves.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cenote {

namespace {

constexpr double half_life = 50'000;    // requests
constexpr int points_of_an_octave = 3;  // powers of two of the capacity
constexpr int octaves = 4;              // to either side
constexpr std::uint64_t largest_factor = 4;

}  // namespace

live_curve::live_curve(std::uint64_t room)
    : curve_({.largest = std::max<std::uint64_t>(room * largest_factor, simulation::sampled_curve::usual_sampled),
              .half_life = half_life,
              .salt = 1}) {}

void live_curve::describe(blocks::curve_status& status) const {
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
    if (const auto found = curves_.find(each.instance); found != curves_.end()) found->second.curve.describe(each);
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

live_curves::live_curves(caf::actor_config& config, std::shared_ptr<watched_limit> limit)
    : live_curves_actor::base(config), limit_(std::move(limit)) {}

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
