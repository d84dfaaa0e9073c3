// Subscribers that ask, as the desks see them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace cenote::publishing {

using event_time = std::chrono::steady_clock::time_point;

enum class frame_delivery : std::uint8_t { done, full, gone };

/// Sends one frame of an answer: peer, topic, number, payload. Never blocks.
using frame_sender = std::function<frame_delivery(const std::string& peer, std::string_view topic, std::uint64_t seq,
                                                  std::string_view payload)>;

inline constexpr std::size_t most_asking_peers = 64;                ///< of one kind; others are not answered
inline constexpr std::chrono::milliseconds asking_patience{2'000};  ///< a peer that takes nothing for so long is let go
inline constexpr std::size_t frames_a_turn = 32;                    ///< for one peer

}  // namespace cenote::publishing
