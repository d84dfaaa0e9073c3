#include "simulation/optimize/sampled_curve.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/key_sample.hpp"

namespace cenote::simulation {

namespace {

constexpr std::uint64_t all_places = std::uint64_t{1} << 32U;
constexpr std::uint64_t counts_of_age = std::uint64_t{1} << 18U;  // uses of exact blocks until all of them are halved
constexpr double most_units = 0x1p40;                             // then sums are scaled back

sampled_curve::settings bounded(sampled_curve::settings setup) {
  setup.sampled = std::clamp(setup.sampled, sampled_curve::fewest_sampled, sampled_curve::most_sampled);
  return setup;
}

}  // namespace

sampled_curve::sampled_curve(const settings& setup)
    : settings_(bounded(setup)),
      stack_(settings_.sampled + most_exact),
      uses_(settings_.sampled + most_exact),
      threshold_(all_places),
      lot_(setup.salt) {
  counted_.reserve(most_exact);
  if (setup.half_life > 0) growth_ = std::exp2(1 / setup.half_life);
}

void sampled_curve::add(std::span<const std::uint64_t> chain) {
  age();
  ++requests_;
  longest_ = std::max<std::uint64_t>(longest_, chain.size());
  blocks_ += static_cast<double>(chain.size()) * unit_;
  stack_.begin_request();
  const std::size_t run = take_exact_run(chain);
  for (std::size_t i = chain.size(); i-- > run;) {
    if (is_sampled(chain[i])) use_sampled(chain[i]);
  }
  if (run < chain.size()) admit(chain, run);
  for (std::size_t i = run; i-- > 0;) use_exact(chain[i]);
}

/// Older requests count less: the unit grows, as it does in forward decay (G. Cormode et al., ICDE 2009).
void sampled_curve::age() {
  unit_ *= growth_;
  if (unit_ < most_units) return;
  misses_.scale(1 / unit_);
  blocks_ /= unit_;
  unit_ = 1;
}

/// The leading blocks that are exact. As chains are prefixes, none behind them is used more.
std::size_t sampled_curve::take_exact_run(std::span<const std::uint64_t> chain) {
  std::size_t run = 0;
  for (; run < chain.size(); ++run) {
    const auto entry = stack_.find(chain[run]);
    if (!entry || stack_.part(*entry) != stack_part::exact) break;
    ++counted_[uses_[*entry]].uses;
  }
  counts_ += run;
  if (counts_ >= counts_of_age) {
    for (counted& each : counted_) each.uses /= 2;
    least_uses_ /= 2;
    counts_ = 0;
  }
  return run;
}

/// Also an exact block that is not among the leading ones, where chains are no prefixes.
void sampled_curve::use_sampled(std::uint64_t key) {
  if (const auto entry = stack_.find(key)) {
    misses_.add_sampled(distance_of(*entry), unit_, rate(), key);
    stack_.raise(*entry);
    return;
  }
  misses_.add_sampled(sampled_misses::endless, unit_, rate(), key);
  make_room();
  if (is_sampled(key)) stack_.push(key, stack_part::sampled);
}

void sampled_curve::use_exact(std::uint64_t key) {
  const auto entry = stack_.find(key);
  if (!entry) return;
  misses_.add_exact(distance_of(*entry), unit_);
  stack_.raise(*entry);
}

/// Lets the first block that is not exact become so, if there is a place or the lot falls on it.
void sampled_curve::admit(std::span<const std::uint64_t> chain, std::size_t depth) {
  const std::uint64_t key = chain[depth];
  const auto at = static_cast<std::uint32_t>(std::min<std::size_t>(depth, ~std::uint32_t{0}));
  std::uint32_t uses = 1;
  counted* place = nullptr;
  if (counted_.size() < most_exact) {
    place = &counted_.emplace_back();
  } else {
    place = make_place(chain.first(depth));
    if (place == nullptr) return;
    uses = place->uses + 1;
    demote(place->key);
  }
  *place = {.key = key, .uses = uses, .depth = at};
  make_exact(key);
  uses_[*stack_.find(key)] = static_cast<std::uint16_t>(place - counted_.data());
}

/// The least used block, the deepest of these, which is not one of `run`; null if the lot does not fall on it.
sampled_curve::counted* sampled_curve::make_place(std::span<const std::uint64_t> run) {
  // All are looked through only where the lot may fall: with what was the least when that was done last.
  const std::uint64_t tickets = std::uint64_t{least_uses_} + 1;
  if (draw() % tickets != 0) return nullptr;
  const auto least =
      std::ranges::min_element(counted_, {}, [](const counted& each) { return std::tuple(each.uses, ~each.depth); });
  least_uses_ = least->uses;
  if (draw() % (std::uint64_t{least->uses} + 1) >= tickets) return nullptr;
  if (std::ranges::find(run, least->key) != run.end()) return nullptr;
  return &*least;
}

void sampled_curve::demote(std::uint64_t key) {
  if (is_sampled(key)) make_room();
  const auto entry = stack_.find(key);
  if (!entry) return;
  if (is_sampled(key)) {
    stack_.set_part(*entry, stack_part::sampled);
  } else {
    stack_.erase(*entry);
  }
}

/// The present request has just used it.
void sampled_curve::make_exact(std::uint64_t key) {
  if (const auto entry = stack_.find(key)) {
    stack_.set_part(*entry, stack_part::exact);
  } else {
    stack_.push(key, stack_part::exact);
  }
}

/// Makes room for a sampled block: blocks that are too deep go, and with them, where these are few, those with the
/// highest places.
void sampled_curve::make_room() {
  if (stack_.sampled() < settings_.sampled) return;
  const double many = 1 / rate();
  stack_.erase_sampled([&](std::uint64_t /*key*/, const sampled_stack::depth& top) {
    return top.exact + top.sampled * many > static_cast<double>(settings_.largest);
  });
  const std::size_t trimmed = settings_.sampled - settings_.sampled / 16;  // so that it is looked through once for many
  while (stack_.sampled() > trimmed) {
    threshold_ = threshold_ / 8 * 7;
    stack_.erase_sampled([&](std::uint64_t key, const sampled_stack::depth& /*top*/) { return !is_sampled(key); });
  }
}

bool sampled_curve::is_sampled(std::uint64_t key) const noexcept {
  return sample_place(key, settings_.salt) < threshold_;
}

double sampled_curve::rate() const noexcept {
  return static_cast<double>(threshold_) / static_cast<double>(all_places);
}

double sampled_curve::distance_of(std::uint32_t entry) const noexcept {
  const auto top = stack_.depth_of(entry);
  return top.sampled == 0 ? top.exact : top.exact + top.sampled / rate();
}

/// splitmix64.
std::uint64_t sampled_curve::draw() noexcept {
  lot_ += 0x9e3779b97f4a7c15ULL;
  return mixed_bits(lot_);
}

std::optional<sampled_curve::point> sampled_curve::estimate(std::uint64_t capacity) const {
  if (capacity < least() || capacity > settings_.largest || blocks_ <= 0) return std::nullopt;
  const auto blocks = static_cast<double>(capacity);
  const auto sum = misses_.sum_beyond(blocks);
  const double apart = threshold_ == all_places ? 0 : std::sqrt(blocks * (1 - rate()) / rate());
  const double shift = (misses_.sum_beyond(blocks - apart).misses - misses_.sum_beyond(blocks + apart).misses) / 2;
  return point{.capacity = capacity,
               .miss_ratio = std::clamp(sum.misses / blocks_, 0.0, 1.0),
               .error = (sum.error + shift + sum.rounding) / blocks_};
}

std::optional<sampled_curve::point> sampled_curve::smallest_with(double hit_ratio, std::uint64_t floor,
                                                                 std::uint64_t ceiling) const {
  std::uint64_t low = std::max(floor, least());
  std::uint64_t high = std::min(ceiling, settings_.largest);
  const auto hits_enough = [&](std::uint64_t capacity) {
    return 1 - misses_.misses_beyond(static_cast<double>(capacity)) / blocks_ >= hit_ratio;
  };
  if (blocks_ <= 0 || low > high || !hits_enough(high) || (low > 0 && hits_enough(low))) return std::nullopt;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (hits_enough(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return estimate(low);
}

std::uint64_t sampled_curve::least() const noexcept {
  if (threshold_ == all_places) return 0;
  if (threshold_ == 0) return ~std::uint64_t{0};
  return static_cast<std::uint64_t>(std::ceil(least_sampled / rate()));
}

std::size_t sampled_curve::bytes() const noexcept {
  return sizeof *this - sizeof stack_ - sizeof misses_ + stack_.bytes() + misses_.bytes() +
         counted_.capacity() * sizeof(counted) + uses_.capacity() * sizeof(std::uint16_t);
}

}  // namespace cenote::simulation
