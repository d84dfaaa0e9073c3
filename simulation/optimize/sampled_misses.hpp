// Misses by capacity, summed up from a sample, and how far chance moves them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace cenote::simulation {

/// A use of a block misses at each capacity that its distance is not below. Distances below 256 are exact, larger ones
/// to 1/128 of a power of two, between which sums are linear. Of fixed size, about 180 KiB. Not thread-safe.
///
/// The standard error is that of a sample which takes each block with the probability R: √(Σ m² · (1 − R) / R) over the
/// blocks, with m misses each. Nothing is kept for a block: the sample is cut at random into 64 groups, and the sums of
/// the groups differ as much as chance has it (random groups: K. Wolter, "Introduction to Variance Estimation", 2007).
class sampled_misses {
 public:
  static constexpr double endless =
      std::numeric_limits<double>::infinity();  ///< the distance of a block that was not used before

  struct sum {
    double misses = 0;
    double error = 0;  ///< standard error
    /// The same of the straight line within the capacity's bin: s is the part of the bin beyond it, and if all of the
    /// bin's uses had one distance, somewhere in it, they would be beyond it with the probability s. √(s · (1 − s)) of
    /// them.
    double rounding = 0;
  };

  sampled_misses();

  /// A use of a block that counts surely.
  void add_exact(double distance, double weight) noexcept { totals_[bin_of(distance)] += weight; }
  /// A use of a block which is in the sample of rate `rate`; `key` decides on its group.
  void add_sampled(double distance, double weight, double rate, std::uint64_t key) noexcept;
  /// Multiplies all that was added.
  void scale(double factor) noexcept;
  [[nodiscard]] sum sum_beyond(double capacity) const noexcept;
  /// The misses of sum_beyond() alone, at a tenth of its price.
  [[nodiscard]] double misses_beyond(double capacity) const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  [[nodiscard]] static std::size_t bin_of(double distance) noexcept;
  [[nodiscard]] static std::size_t coarse_bin_of(double distance) noexcept;

  std::vector<double> totals_;  ///< by bin of the distance
  std::vector<double> groups_;  ///< by coarse bin, then by group: each of a sampled use times √(1 − R) / R
};

}  // namespace cenote::simulation
