// What is known of a device's tier, news after news.
#pragma once

#include <utility>

#include "actors/messages.hpp"

namespace cenote {

/// A tier that is away keeps its actors, which end what it had; one that failed before it was told to be ready stays
/// so.
inline void learn(device_news& known, const device_news& news) {
  auto stack = news.stack;
  if (!stack) stack = std::move(known.stack);
  if (known.phase != device_phase::away) known = news;
  known.stack = std::move(stack);
}

}  // namespace cenote
