// Payloads of the attach frames (frame.hpp), the same for client and node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/byte_io.hpp"
#include "core/error.hpp"
#include "core/instance_spec.hpp"

namespace cenote::local {

struct attach_request {
  instance_spec spec;
  std::uint32_t max_pins = 0;
  std::string token;
  std::string client_name;  ///< since 1.1; empty from older clients
  /// Since 1.4: a random number, the same in all attempts of one call. A session that an earlier attempt made, of which
  /// the client did not hear because the worker died, ends. 0 from older clients: they do not say.
  std::uint64_t call = 0;
  /// Since 1.8: the device that the session's blocks lie on, as core/device_spec.hpp names it; empty, also from older
  /// clients: host memory.
  std::string device{};
  std::uint32_t part = 0;  ///< since 1.8: with a device, whose share of each block lies there
};

struct attach_reply {
  std::uint64_t session = 0;
  std::uint64_t secret = 0;  ///< proves at a reattach that this is the same client
  std::uint64_t worker_epoch = 0;
  std::uint32_t pin_slots = 0;
};

/// A block that the client may still be writing.
struct held_block {
  std::uint64_t block = 0;  ///< block_ref bits
  std::uint32_t grant_version = 0;
  std::uint64_t parts = all_parts;  ///< since 1.3; from older clients all, for they do not say

  static constexpr std::uint64_t all_parts = ~std::uint64_t{0};
};

struct reattach_request {
  std::uint64_t session = 0;
  std::uint64_t secret = 0;
  /// Since 1.3: the worker's epoch in session memory before the list was made. Another worker than that one must not
  /// conclude anything from what is not on it. From older clients 0: they do not say.
  std::uint64_t listed_in = 0;
  std::vector<held_block> held;
};

/// Removals and clears of an instance that are not confirmed, and how many nodes have not confirmed one of them.
struct unconfirmed_reply {
  std::uint64_t removals = 0, nodes = 0;
};

struct slab_descriptor {
  std::uint32_t index = 0;
  std::uint64_t bytes = 0;  ///< of the whole segment
};

[[nodiscard]] std::vector<std::byte> encode(const attach_request& request, std::uint16_t minor);
[[nodiscard]] std::vector<std::byte> encode(const unconfirmed_reply& reply);
[[nodiscard]] std::vector<std::byte> encode(const attach_reply& reply);
[[nodiscard]] std::vector<std::byte> encode(const reattach_request& request, std::uint16_t minor);
[[nodiscard]] std::vector<std::byte> encode_slab_query(const std::vector<std::uint32_t>& indices);
[[nodiscard]] std::vector<std::byte> encode_slabs(const std::vector<slab_descriptor>& slabs);

[[nodiscard]] result<unconfirmed_reply> decode_unconfirmed_reply(std::span<const std::byte> payload);
[[nodiscard]] result<attach_request> decode_attach(std::span<const std::byte> payload, std::uint16_t minor);
[[nodiscard]] result<attach_reply> decode_attach_reply(std::span<const std::byte> payload);
[[nodiscard]] result<reattach_request> decode_reattach(std::span<const std::byte> payload, std::uint16_t minor);
[[nodiscard]] result<std::vector<std::uint32_t>> decode_slab_query(std::span<const std::byte> payload);
[[nodiscard]] result<std::vector<slab_descriptor>> decode_slabs(std::span<const std::byte> payload);

}  // namespace cenote::local
