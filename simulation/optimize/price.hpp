// Money by the hour: replicas, and the memory of tiers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace cenote::simulation {

struct tier_size {
  std::string name;
  double bytes = 0;
};

/// In one currency, which has no name here. Plain values.
struct price_list {
  struct tier_price {
    std::string name;
    double gib_hour = 0;  ///< for 2^30 bytes and an hour
  };
  double replica_hour = 0;
  std::vector<tier_price> tiers;

  /// replicas · price + Σ GiB · price of the tier. A tier without a price is free.
  [[nodiscard]] double hourly(std::uint64_t replicas, std::span<const tier_size> sizes) const;
};

/// "replica=98/h,dram=0.004/GiB/h". Errors: invalid_argument.
[[nodiscard]] result<price_list> parse_prices(std::string_view text);

}  // namespace cenote::simulation
