#include "simulation/optimize/price.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/units.hpp"

namespace cenote::simulation {

namespace {

constexpr double highest_price = 1e12;

result<void> add_price(price_list& prices, std::string_view text) {
  const auto refuse = [&] {
    return fail(error_code::invalid_argument,
                fmt::format("`{}` is no price; right are replica=98/h and TIER=0.004/GiB/h, each once", text));
  };
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) return refuse();
  const std::string_view name = text.substr(0, equals);
  std::string_view rest = text.substr(equals + 1);
  double amount = 0;
  const auto [end, bad] = std::from_chars(rest.data(), rest.data() + rest.size(), amount);
  if (bad != std::errc() || !(amount >= 0) || amount > highest_price) return refuse();
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  if (std::ranges::find(prices.tiers, name, &price_list::tier_price::name) != prices.tiers.end()) return refuse();
  if (name == "replica") {
    if (rest != "/h" || prices.replica_hour > 0) return refuse();
    prices.replica_hour = amount;
  } else {
    if (rest != "/GiB/h") return refuse();
    prices.tiers.push_back({std::string(name), amount});
  }
  return {};
}

}  // namespace

double price_list::hourly(std::uint64_t replicas, std::span<const tier_size> sizes) const {
  double sum = static_cast<double>(replicas) * replica_hour;
  for (const tier_size& each : sizes) {
    const auto place = std::ranges::find(tiers, each.name, &tier_price::name);
    if (place != tiers.end()) sum += each.bytes / static_cast<double>(GiB) * place->gib_hour;
  }
  return sum;
}

result<price_list> parse_prices(std::string_view text) {
  price_list prices;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (auto good = add_price(prices, text.substr(begin, end - begin)); !good) return std::unexpected(good.error());
    begin = end + 1;
  }
  return prices;
}

}  // namespace cenote::simulation
