// How pieces of blocks stand on the wire, and how a connection for blocks is joined to its link.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "transport/peer/network.hpp"

namespace cenote::ucx {

struct piece {
  peer::piece_header head;
  std::span<const std::byte> bytes;
};

/// What stands before the bytes of a message's pieces. Little endian: magic "CNPB", version and number of pieces (16
/// bits each), then for each its bytes (32 bits) and the members of its peer::piece_header.
[[nodiscard]] std::vector<std::byte> encode(std::span<const piece> pieces);
/// The pieces of a message. None: of another magic, version or size, or of no piece.
[[nodiscard]] std::vector<piece> decode_pieces(std::span<const std::byte> header, std::span<const std::byte> data);

/// The first message on a connection for blocks, 40 bytes: magic "CNPJ", version, size, the ticket.
[[nodiscard]] std::vector<std::byte> encode(const peer::ticket& proof);
[[nodiscard]] std::optional<peer::ticket> decode_ticket(std::span<const std::byte> bytes);

}  // namespace cenote::ucx
