// What a client asks of one prefetch, and how the terms travel in a submission.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "core/choices.hpp"
#include "memory/session_memory.hpp"

namespace cenote::memory {

using cenote::prefetch_policy;

/// All empty are the node's defaults, which is what clients before 1.2 ask for. Packed, layout of the last entry of a
/// request: argument = policy (8) | hold (1) | more (1); want = base (32) | per_ki_token (32), each in milliseconds and
/// plus one; block = prefill rate plus one; detail = threshold plus one; grant_version = chain. 0 in a field means that
/// it was not given.
struct prefetch_terms {
  prefetch_policy policy = prefetch_policy::node_default;
  bool hold = false;  ///< keep what came from eviction until the client says that it has pinned it
  bool more = false;  ///< the chain goes on in the next request of the same number; only its last one is answered late
  std::uint32_t chain = 0;  ///< the client's name of the whole; 0: none, the request is all of it
  std::optional<std::chrono::milliseconds> base;
  std::optional<std::chrono::milliseconds> per_ki_token;
  std::optional<std::uint64_t> prefill_rate;      ///< tokens/s; 0: recomputing is no alternative
  std::optional<std::uint32_t> threshold_tokens;  ///< fewer tokens below DRAM are not worth a load

  static constexpr std::chrono::milliseconds longest{0xffff'fffe};

  void pack(submission& into) const noexcept {
    into.argument = std::uint64_t{static_cast<std::uint8_t>(policy)} | (hold ? hold_bit : 0) | (more ? more_bit : 0);
    into.want = packed(base) | (packed(per_ki_token) << 32);
    into.block = prefill_rate ? *prefill_rate + 1 : 0;
    into.detail = threshold_tokens ? std::uint64_t{*threshold_tokens} + 1 : 0;
    into.grant_version = chain;
  }

  /// A policy that this build does not know counts as the default.
  [[nodiscard]] static prefetch_terms of(const submission& entry) noexcept {
    prefetch_terms terms;
    const std::uint64_t policy = entry.argument & 0xff;
    if (policy <= static_cast<std::uint64_t>(prefetch_policy::timeout)) {
      terms.policy = static_cast<prefetch_policy>(policy);
    }
    terms.hold = (entry.argument & hold_bit) != 0;
    terms.chain = entry.grant_version;
    terms.more = terms.chain != 0 && (entry.argument & more_bit) != 0;
    terms.base = unpacked(entry.want & 0xffff'ffff);
    terms.per_ki_token = unpacked(entry.want >> 32);
    if (entry.block != 0) terms.prefill_rate = entry.block - 1;
    if (entry.detail != 0) terms.threshold_tokens = static_cast<std::uint32_t>(entry.detail - 1);
    return terms;
  }

 private:
  static constexpr std::uint64_t hold_bit = 1U << 8;
  static constexpr std::uint64_t more_bit = 1U << 9;

  [[nodiscard]] static std::uint64_t packed(const std::optional<std::chrono::milliseconds>& time) noexcept {
    return time ? static_cast<std::uint64_t>(time->count()) + 1 : 0;
  }
  [[nodiscard]] static std::optional<std::chrono::milliseconds> unpacked(std::uint64_t word) noexcept {
    if (word == 0) return std::nullopt;
    return std::chrono::milliseconds(word - 1);
  }
};

}  // namespace cenote::memory
