#include "transport/ucx/piece.hpp"

#include <cstdint>

#include "core/byte_io.hpp"

namespace cenote::ucx {

namespace {

constexpr std::uint32_t piece_magic = 0x42504e43;   // "CNPB"
constexpr std::uint32_t ticket_magic = 0x4a504e43;  // "CNPJ"
constexpr std::uint16_t wire_version = 1;
constexpr std::size_t message_bytes = 8;  // of the header without its pieces
constexpr std::size_t piece_bytes = 44;
constexpr std::size_t ticket_bytes = 8 + sizeof(peer::ticket);

/// The 16 bits after magic and version; none: they are others.
std::optional<std::uint16_t> number_after(byte_reader& reader, std::uint32_t magic) {
  const bool is_right = reader.get<std::uint32_t>() == magic && reader.get<std::uint16_t>() == wire_version;
  const auto number = reader.get<std::uint16_t>();
  return is_right && reader.ok() ? std::optional(number) : std::nullopt;
}

void begin(byte_writer& writer, std::uint32_t magic, std::size_t number) {
  writer.put(magic);
  writer.put(wire_version);
  writer.put(static_cast<std::uint16_t>(number));
}

}  // namespace

std::vector<std::byte> encode(std::span<const piece> pieces) {
  byte_writer writer;
  begin(writer, piece_magic, pieces.size());
  for (const auto& [head, bytes] : pieces) {
    writer.put(static_cast<std::uint32_t>(bytes.size()));
    writer.put(head.handle);
    writer.put(head.token);
    writer.put(head.offset);
    writer.put(head.total);
    writer.put(head.checksum);
    writer.put(head.what);
    writer.put(head.flags);
  }
  return std::move(writer).take();
}

std::vector<piece> decode_pieces(std::span<const std::byte> header, std::span<const std::byte> data) {
  byte_reader reader(header);
  const auto count = number_after(reader, piece_magic);
  if (!count || header.size() != message_bytes + *count * piece_bytes) return {};
  std::vector<piece> pieces(*count);
  for (auto& [head, bytes] : pieces) {
    const auto size = reader.get<std::uint32_t>();
    if (size > data.size()) return {};
    bytes = data.first(size);
    data = data.subspan(size);
    head.handle = reader.get<std::uint32_t>();
    head.token = reader.get<std::uint64_t>();
    head.offset = reader.get<std::uint64_t>();
    head.total = reader.get<std::uint64_t>();
    head.checksum = reader.get<std::uint64_t>();
    head.what = reader.get<std::uint16_t>();
    head.flags = reader.get<std::uint16_t>();
  }
  return data.empty() ? pieces : std::vector<piece>();
}

std::vector<std::byte> encode(const peer::ticket& proof) {
  byte_writer writer;
  begin(writer, ticket_magic, ticket_bytes);
  writer.put_raw(proof);
  return std::move(writer).take();
}

std::optional<peer::ticket> decode_ticket(std::span<const std::byte> bytes) {
  byte_reader reader(bytes);
  if (number_after(reader, ticket_magic) != ticket_bytes || bytes.size() != ticket_bytes) return std::nullopt;
  return reader.get_array<sizeof(peer::ticket)>();
}

}  // namespace cenote::ucx
