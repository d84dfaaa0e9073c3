#include "simulation/optimize/quota_moves.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cenote::simulation {

namespace {

constexpr double certainty = 3;             // standard errors
constexpr double worthwhile = 0.003;        // of all tokens that are asked for: a move for less goes to and fro
constexpr std::uint64_t step_divisor = 20;  // of the giver's quota
constexpr int sizes_of_a_move = 40;

const quota_group* find(std::span<const quota_group> groups, const std::string& name) {
  const auto found = std::ranges::find(groups, name, &quota_group::name);
  return found == groups.end() ? nullptr : &*found;
}

/// The bytes that may go from one to the other.
std::uint64_t room_between(const quota_group& giver, const quota_group& taker) {
  const std::uint64_t to_give = giver.quota - std::min(giver.quota, giver.low);
  const std::uint64_t to_take = taker.high - std::min(taker.high, taker.quota);
  return std::min(to_give, to_take);
}

/// On straight lines between the points, the first of which begins where there is no memory and no hit.
std::optional<quota_group::point> point_at(std::span<const quota_group::point> points, double bytes) {
  if (points.empty()) return std::nullopt;
  const auto next = std::ranges::upper_bound(points, bytes, {}, &quota_group::point::bytes);
  if (next == points.end()) return points.back();
  const auto last = next == points.begin() ? quota_group::point{.error = next->error} : *(next - 1);
  const double part = (bytes - last.bytes) / (next->bytes - last.bytes);
  return quota_group::point{bytes, std::lerp(last.hit_ratio, next->hit_ratio, part), std::max(last.error, next->error)};
}

/// Of a difference of two ratios that come from one sample: the requests that miss at the one and hit at the other are
/// a part of those that miss, and so is the variance of their number.
double error_of_difference(const quota_group::point& one, const quota_group::point& other) {
  const double misses = 1 - std::min(one.hit_ratio, other.hit_ratio);
  const double part = misses > 0 ? std::abs(one.hit_ratio - other.hit_ratio) / misses : 0;
  return std::max(one.error, other.error) * std::sqrt(std::min(part, 1.0));
}

/// The share of all tokens that the curves promise above that at home.
double promised_above(std::span<const quota_group> groups, const std::map<std::string, std::uint64_t>& home) {
  double less = 0;
  double tokens = 0;
  for (const quota_group& each : groups) {
    const auto change = change_of(each, static_cast<double>(home.at(each.name)));
    less += change ? change->tokens : 0;
    for (const auto& member : each.members) tokens += member.tokens;
  }
  return tokens > 0 ? -less / tokens : 0;
}

/// Tokens that all groups were asked for in this interval, and that were found.
std::pair<std::uint64_t, std::uint64_t> requested_and_found(std::span<const quota_group> groups) {
  std::pair<std::uint64_t, std::uint64_t> sum{0, 0};
  for (const quota_group& each : groups) {
    sum.first += each.requested;
    sum.second += each.hits;
  }
  return sum;
}

}  // namespace

std::optional<hit_change> change_of(const quota_group& group, double quota) {
  hit_change all;
  double variance = 0;
  for (const quota_group::curve_share& each : group.members) {
    if (each.tokens <= 0) continue;
    const auto present = point_at(each.points, static_cast<double>(group.quota) * each.share);
    const auto other = point_at(each.points, quota * each.share);
    if (!present || !other) return std::nullopt;
    all.tokens += each.tokens * (other->hit_ratio - present->hit_ratio);
    variance += std::pow(each.tokens * error_of_difference(*present, *other), 2);
  }
  all.error = std::sqrt(variance);
  return all;
}

std::optional<quota_move> quota_moves::decide(std::span<const quota_group> groups) {
  ++interval_;
  measure(groups);
  if (auto home = end_excursion(groups)) return home;
  if (auto back = end_trial(groups)) return back;
  if (!found_share() || interval_ < rest_until_) return std::nullopt;
  auto move = best_move(groups);
  if (move) begin_step(groups, *move);
  return move;
}

void quota_moves::measure(std::span<const quota_group> groups) {
  const auto sum = requested_and_found(groups);
  if (sum.first == 0) return;
  measured_.push_back(sum);
  if (measured_.size() > trial_intervals) measured_.pop_front();
}

/// Of the latest intervals, once there are enough.
std::optional<double> quota_moves::found_share() const {
  if (measured_.size() < trial_intervals) return std::nullopt;
  double requested = 0;
  double hits = 0;
  for (const auto& [requests, found] : measured_) {
    requested += static_cast<double>(requests);
    hits += static_cast<double>(found);
  }
  return hits / requested;
}

/// The way home, where the quotas here have cost more than they may. Another hand's quotas are a new home.
std::optional<quota_move> quota_moves::end_excursion(std::span<const quota_group> groups) {
  if (!excursion_) return std::nullopt;
  for (const quota_group& each : groups) {
    const auto [place, is_new] = excursion_->present.emplace(each.name, each.quota);
    if (is_new) excursion_->home[each.name] = each.quota;
    if (place->second == each.quota) continue;
    excursion_.reset();
    return std::nullopt;
  }
  if (excursion_->present.size() == groups.size()) add_credit(groups);
  if (!excursion_->is_over && excursion_->credit >= -most_loss) return std::nullopt;
  return step_home(groups);
}

/// By what is found and by what the curves promise, whichever is less: a load that is easier than the one at home hides
/// a loss from the one, and curves lag behind.
void quota_moves::add_credit(std::span<const quota_group> groups) {
  const auto [requested, found] = requested_and_found(groups);
  if (requested == 0) return;
  const double share = static_cast<double>(found) / static_cast<double>(requested);
  const double above = std::min(share - excursion_->baseline, promised_above(groups, excursion_->home));
  excursion_->credit = std::min(excursion_->credit + above, most_credit);
  excursion_->sum += above;
  excursion_->intervals += 1;
}

/// From the group that has most above its quota at home to the one that lacks most of it. At home there is a rest.
std::optional<quota_move> quota_moves::step_home(std::span<const quota_group> groups) {
  const auto surplus = [&](const quota_group& each) {
    return static_cast<double>(each.quota) - static_cast<double>(excursion_->home.at(each.name));
  };
  const auto [taker, giver] = std::ranges::minmax_element(groups, {}, surplus);
  const double bytes = std::max(0.0, std::min(surplus(*giver), -surplus(*taker)));
  const quota_move move{.giver = giver->name,
                        .taker = taker->name,
                        .bytes = static_cast<std::uint64_t>(bytes),
                        .is_undone = true,
                        .baseline = excursion_->baseline,
                        .measured = excursion_->baseline + excursion_->sum / std::max(excursion_->intervals, 1.0)};
  trial_.reset();
  measured_.clear();  // measurements with other quotas are no baseline
  note_step(move);
  excursion_->is_over = true;
  if (excursion_->present != excursion_->home && move.bytes > 0) return move;
  failures_ = excursion_->sum < 0 ? std::min(failures_ + 1, most_failures) : 0;
  if (failures_ > 0) rest_until_ = interval_ + (rest_intervals << (failures_ - 1));
  excursion_.reset();
  return move;
}

void quota_moves::note_step(const quota_move& move) {
  if (!excursion_) return;
  excursion_->present[move.giver] -= move.bytes;
  excursion_->present[move.taker] += move.bytes;
}

/// The way back, where a trial that ends has cost hits. A trial whose quotas another hand has changed is over.
std::optional<quota_move> quota_moves::end_trial(std::span<const quota_group> groups) {
  if (!trial_) return std::nullopt;
  const trial ended = *trial_;
  const quota_group* giver = find(groups, ended.direction.first);
  const quota_group* taker = find(groups, ended.direction.second);
  const bool is_intact =
      giver != nullptr && taker != nullptr && giver->quota == ended.giver_quota && taker->quota == ended.taker_quota;
  if (is_intact && interval_ < ended.end) return std::nullopt;
  trial_.reset();
  if (!is_intact) measured_.clear();  // measurements with other quotas are no baseline
  const auto measured = found_share();
  if (!is_intact || !measured || *measured >= ended.baseline - most_fall) return std::nullopt;
  rests_[ended.direction] = interval_ + rest_intervals;
  measured_.clear();  // as above
  const quota_move move{.giver = ended.direction.second,
                        .taker = ended.direction.first,
                        .bytes = std::min(ended.bytes, room_between(*taker, *giver)),
                        .is_undone = true,
                        .baseline = ended.baseline,
                        .measured = *measured};
  note_step(move);
  return move;
}

std::optional<quota_move> quota_moves::best_move(std::span<const quota_group> groups) const {
  std::uint64_t sum = 0;
  double least_gain = 0;
  for (const quota_group& each : groups) {
    sum += each.quota;
    for (const auto& member : each.members) least_gain += member.tokens * worthwhile;
  }
  std::optional<quota_move> best;
  for (const quota_group& giver : groups) {
    for (const quota_group& taker : groups) {
      const pair direction{giver.name, taker.name};
      if (&giver == &taker || (trial_ && trial_->direction != direction)) continue;
      if (const auto rest = rests_.find(direction); rest != rests_.end() && interval_ < rest->second) continue;
      if (giver.quota < step_divisor) continue;
      const std::uint64_t room = room_between(giver, taker);
      for (int i = 1; i <= sizes_of_a_move; ++i) {
        if (room < sum / sizes_of_a_move * (i - 1) || room == 0) break;
        const double bytes = std::min(static_cast<double>(sum) * i / sizes_of_a_move, static_cast<double>(room));
        const auto loss = change_of(giver, static_cast<double>(giver.quota) - bytes);
        const auto gain = change_of(taker, static_cast<double>(taker.quota) + bytes);
        if (!loss || !gain) continue;
        const double found = gain->tokens + loss->tokens;
        const double error = std::hypot(gain->error, loss->error);
        if (found <= std::max(certainty * error, least_gain) || (best && found - error <= best->gain - best->error))
          continue;
        best = quota_move{.giver = giver.name,
                          .taker = taker.name,
                          .bytes = static_cast<std::uint64_t>(bytes),
                          .gain = found,
                          .error = error};
      }
    }
  }
  return best;
}

/// A step of the move, and the trial and the excursion that it is part of.
void quota_moves::begin_step(std::span<const quota_group> groups, quota_move& move) {
  const quota_group& giver = *find(groups, move.giver);
  const quota_group& taker = *find(groups, move.taker);
  move.bytes = std::min(move.bytes, giver.quota / step_divisor);
  if (!trial_) {
    trial_ = trial{.direction = {move.giver, move.taker},
                   .end = interval_ + trial_intervals,
                   .bytes = 0,
                   .giver_quota = 0,
                   .taker_quota = 0,
                   .baseline = *found_share()};
  }
  if (!excursion_) {
    excursion_ = excursion{};
    excursion_->baseline = *found_share();
    for (const quota_group& each : groups) excursion_->home[each.name] = each.quota;
    excursion_->present = excursion_->home;
  }
  note_step(move);
  trial_->bytes += move.bytes;
  trial_->giver_quota = giver.quota - move.bytes;
  trial_->taker_quota = taker.quota + move.bytes;
}

}  // namespace cenote::simulation
