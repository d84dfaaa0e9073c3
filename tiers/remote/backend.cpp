#include "tiers/remote/backend.hpp"

#include <atomic>
#include <memory>
#include <utility>

namespace cenote::remote {

std::function<void(unconfirmed_removals)> sum_of(std::size_t parts, std::function<void(unconfirmed_removals)> then) {
  struct sum {
    std::atomic<std::size_t> open;
    std::atomic<std::uint64_t> removals = 0, places = 0;
  };
  return [all = std::make_shared<sum>(parts), then = std::move(then)](const unconfirmed_removals& part) {
    all->removals += part.removals;
    all->places += part.places;
    if (--all->open == 0) then({.removals = all->removals, .places = all->places});
  };
}

}  // namespace cenote::remote
