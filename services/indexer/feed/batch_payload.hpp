// The bytes of one published batch, held by whatever received them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace cenote::indexer {

/// A view of bytes, and an owner that keeps them: a message of ZMQ needs no copy. Copies share the bytes, which no one
/// may change.
struct batch_payload {
  std::span<const std::byte> bytes{};
  std::shared_ptr<const void> owner{};
};

/// As it stands on the wire behind the last batch of a replay; no batch has it.
inline constexpr std::uint64_t end_number = ~std::uint64_t{0};

}  // namespace cenote::indexer
