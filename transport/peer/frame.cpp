#include "transport/peer/frame.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "core/byte_io.hpp"
#include "core/checksum.hpp"

namespace cenote::peer {

namespace {

constexpr std::uint32_t frame_magic = 0x46504e43;  // "CNPF"
constexpr std::size_t check_at = 20;

std::uint32_t check_of(std::span<const std::byte> frame) {
  std::array<std::byte, frame_header_bytes> head{};
  std::ranges::copy(frame.first(frame_header_bytes), head.begin());
  std::memset(head.data() + check_at, 0, sizeof(std::uint32_t));
  const std::uint64_t of_head = checksum_of(head);
  return static_cast<std::uint32_t>(checksum_of(frame.subspan(frame_header_bytes), of_head));
}

}  // namespace

incarnation incarnation::of(std::uint64_t started_ms, std::uint64_t worker) noexcept {
  constexpr std::uint64_t most_workers = (std::uint64_t{1} << worker_bits) - 1;
  return {started_ms << worker_bits | std::min(worker, most_workers)};
}

std::vector<std::byte> encode_frame(frame_type type, std::uint64_t request, incarnation from,
                                    std::span<const std::byte> body) {
  byte_writer writer;
  writer.put(frame_magic);
  writer.put(frame_major);
  writer.put(frame_minor);
  writer.put(static_cast<std::uint16_t>(type));
  writer.put(request);
  writer.put(static_cast<std::uint32_t>(body.size()));
  writer.put(std::uint32_t{0});
  writer.put(from.number);
  writer.put_raw(body);
  auto frame = std::move(writer).take();
  const std::uint32_t check = check_of(frame);
  std::memcpy(frame.data() + check_at, &check, sizeof check);
  return frame;
}

result<frame_view> decode_frame(std::span<const std::byte> bytes) {
  if (bytes.size() < frame_header_bytes)
    return fail(error_code::malformed, "a frame of " + std::to_string(bytes.size()) + " bytes has no header");
  byte_reader reader(bytes);
  if (reader.get<std::uint32_t>() != frame_magic) return fail(error_code::malformed, "not a frame of Cenote's");
  const auto major = reader.get<std::uint8_t>();
  if (major != frame_major)
    return fail(error_code::protocol_mismatch, "the other node speaks version " + std::to_string(major) +
                                                   " of the protocol between nodes, this one " +
                                                   std::to_string(frame_major));
  frame_view frame;
  frame.minor = reader.get<std::uint8_t>();
  frame.type = static_cast<frame_type>(reader.get<std::uint16_t>());
  frame.request = reader.get<std::uint64_t>();
  const auto body = reader.get<std::uint32_t>();
  const auto check = reader.get<std::uint32_t>();
  frame.from.number = reader.get<std::uint64_t>();
  if (body != bytes.size() - frame_header_bytes)
    return fail(error_code::malformed, "a frame names " + std::to_string(body) + " bytes and has " +
                                           std::to_string(bytes.size() - frame_header_bytes));
  if (check != check_of(bytes)) return fail(error_code::malformed, "a frame's check is wrong");
  frame.body = bytes.subspan(frame_header_bytes);
  return frame;
}

}  // namespace cenote::peer
