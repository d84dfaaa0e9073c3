// Quotas of groups that share a fixed sum, moved in small steps to where they bring more hits.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cenote::simulation {

/// A group as it is now.
struct quota_group {
  struct point {
    double bytes = 0;
    double hit_ratio = 0;
    double error = 0;  ///< standard error of the ratio
  };
  /// An instance of it.
  struct curve_share {
    double share = 0;           ///< of the group's memory
    double tokens = 0;          ///< asked for in an interval, on average
    std::vector<point> points;  ///< by bytes, ascending
  };
  std::string name;
  std::uint64_t quota = 0;  ///< bytes
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  std::vector<curve_share> members;
  std::uint64_t requested = 0;  ///< tokens, in the interval
  std::uint64_t hits = 0;       ///< of those
};

struct quota_move {
  std::string giver, taker;
  std::uint64_t bytes = 0;
  double gain = 0;         ///< tokens found in an interval, by the whole move of which this is a step
  double error = 0;        ///< standard error of the gain
  bool is_undone = false;  ///< the trial's steps go back: hits fell from `baseline` to `measured`
  double baseline = 0;
  double measured = 0;
};

/// Decides once an interval. Of all pairs of groups and sizes of a move the one that is likely to bring most is taken,
/// if the curves promise more than three standard errors of what they promise, and 0.3 % of all tokens; a step is at
/// most a twentieth of the giver's quota. Steps of one pair within ten intervals are a trial: if the share of tokens
/// that were found has fallen by more than half a point over these, they go back, and the pair rests for sixty
/// intervals. Quotas stay within their limits, and their sum stays. Nothing moves before ten intervals with requests
/// were measured. Not thread-safe.
///
/// From the first step on there is an account against the quotas before it, those at home: the share of tokens that is
/// found above that at home, or that the curves promise if that is less, interval by interval. Where the account is
/// five points below 0, all goes home at once. If the whole excursion has cost hits, nothing moves for sixty intervals,
/// twice as long after each further one: a load that turns as soon as quotas have followed it costs little more than
/// that. What counts in favour is bounded by ten points, so that good times cover no long bad ones.
class quota_moves {
 public:
  static constexpr std::size_t trial_intervals = 10;
  static constexpr std::size_t rest_intervals = 60;
  static constexpr double most_fall = 0.005;
  static constexpr double most_loss = most_fall * trial_intervals;
  static constexpr double most_credit = 2 * most_loss;
  static constexpr unsigned most_failures = 7;  ///< a rest of 3,840 intervals

  /// Groups are known by their names; those without limits must not be given.
  [[nodiscard]] std::optional<quota_move> decide(std::span<const quota_group> groups);

 private:
  using pair = std::pair<std::string, std::string>;  ///< giver, taker
  struct trial {
    pair direction;
    std::uint64_t end = 0;                           ///< interval
    std::uint64_t bytes = 0;                         ///< moved so far
    std::uint64_t giver_quota = 0, taker_quota = 0;  ///< after the latest step
    double baseline = 0;                             ///< share of tokens found
  };

  /// The time with other quotas than at home.
  struct excursion {
    std::map<std::string, std::uint64_t> home;     ///< quotas before the first step
    std::map<std::string, std::uint64_t> present;  ///< … and after the latest
    double baseline = 0;                           ///< share of tokens that was found at home
    double credit = 0;                             ///< the account, most_credit at most
    double sum = 0;                                ///< … without a bound
    double intervals = 0;                          ///< of the account
    bool is_over = false;                          ///< on the way home
  };

  void measure(std::span<const quota_group> groups);
  [[nodiscard]] std::optional<double> found_share() const;
  [[nodiscard]] std::optional<quota_move> end_excursion(std::span<const quota_group> groups);
  void add_credit(std::span<const quota_group> groups);
  [[nodiscard]] std::optional<quota_move> step_home(std::span<const quota_group> groups);
  void note_step(const quota_move& move);
  [[nodiscard]] std::optional<quota_move> end_trial(std::span<const quota_group> groups);
  [[nodiscard]] std::optional<quota_move> best_move(std::span<const quota_group> groups) const;
  void begin_step(std::span<const quota_group> groups, quota_move& move);

  std::uint64_t interval_ = 0;
  std::deque<std::pair<std::uint64_t, std::uint64_t>> measured_;  ///< asked and found, of the latest with requests
  std::optional<trial> trial_;
  std::optional<excursion> excursion_;
  std::uint64_t rest_until_ = 0;         ///< of all pairs
  unsigned failures_ = 0;                ///< excursions in a row that have cost hits
  std::map<pair, std::uint64_t> rests_;  ///< until when
};

struct hit_change {
  double tokens = 0;  ///< more that are found in an interval
  double error = 0;   ///< standard error
};
/// That of a group with another quota, in bytes. Nothing where its curves do not reach.
[[nodiscard]] std::optional<hit_change> change_of(const quota_group& group, double quota);

}  // namespace cenote::simulation
