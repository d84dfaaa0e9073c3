#include "transport/local/attach.hpp"

#include "core/text.hpp"

namespace cenote::local {

namespace {

constexpr std::uint32_t max_held = 4096;         // a client writes no more blocks at a time than that
constexpr std::uint32_t max_slabs_a_query = 64;  // descriptors in one packet

std::unexpected<error> ends_early(std::string_view what) {
  return fail(error_code::malformed, std::string(what) + " ends early or has absurd counts");
}

}  // namespace

std::vector<std::byte> encode(const attach_request& request, std::uint16_t minor) {
  byte_writer out;
  cenote::encode(out, request.spec);
  out.put(request.max_pins);
  out.put_text(request.token);
  if (minor >= 1) out.put_text(request.client_name);
  if (minor >= 4) out.put(request.call);
  if (minor >= 8) {
    out.put_text(request.device);
    out.put(request.part);
  }
  return std::move(out).take();
}

std::vector<std::byte> encode(const attach_reply& reply) {
  byte_writer out;
  out.put(reply.session);
  out.put(reply.secret);
  out.put(reply.worker_epoch);
  out.put(reply.pin_slots);
  return std::move(out).take();
}

std::vector<std::byte> encode(const reattach_request& request, std::uint16_t minor) {
  byte_writer out;
  out.put(request.session);
  out.put(request.secret);
  if (minor >= 3) out.put(request.listed_in);
  out.put(static_cast<std::uint32_t>(request.held.size()));
  for (const held_block& held : request.held) {
    out.put(held.block);
    out.put(held.grant_version);
    if (minor >= 3) out.put(held.parts);
  }
  return std::move(out).take();
}

std::vector<std::byte> encode_slab_query(const std::vector<std::uint32_t>& indices) {
  byte_writer out;
  out.put(static_cast<std::uint32_t>(indices.size()));
  for (const std::uint32_t index : indices) out.put(index);
  return std::move(out).take();
}

std::vector<std::byte> encode_slabs(const std::vector<slab_descriptor>& slabs) {
  byte_writer out;
  out.put(static_cast<std::uint32_t>(slabs.size()));
  for (const slab_descriptor& slab : slabs) {
    out.put(slab.index);
    out.put(slab.bytes);
  }
  return std::move(out).take();
}

result<attach_request> decode_attach(std::span<const std::byte> payload, std::uint16_t minor) {
  byte_reader in(payload);
  attach_request request;
  auto spec = decode_instance_spec(in);
  if (!spec) return std::unexpected(spec.error());
  request.spec = std::move(*spec);
  request.max_pins = in.get<std::uint32_t>();
  request.token = in.get_text();
  if (minor >= 1) request.client_name = in.get_text();
  if (minor >= 4) request.call = in.get<std::uint64_t>();
  if (minor >= 8) {
    request.device = in.get_text();
    request.part = in.get<std::uint32_t>();
  }
  if (!in.ok()) return ends_early("an attach request");
  if (auto ok = validate(request.spec); !ok) return std::unexpected(ok.error());
  if (auto ok = check_name("client name", request.client_name, max_name_bytes); !ok) return std::unexpected(ok.error());
  if (auto ok = check_name("device", request.device, max_name_bytes); !ok) return std::unexpected(ok.error());
  return request;
}

result<attach_reply> decode_attach_reply(std::span<const std::byte> payload) {
  byte_reader in(payload);
  attach_reply reply;
  reply.session = in.get<std::uint64_t>();
  reply.secret = in.get<std::uint64_t>();
  reply.worker_epoch = in.get<std::uint64_t>();
  reply.pin_slots = in.get<std::uint32_t>();
  if (!in.ok()) return ends_early("an attach reply");
  return reply;
}

result<reattach_request> decode_reattach(std::span<const std::byte> payload, std::uint16_t minor) {
  byte_reader in(payload);
  reattach_request request;
  request.session = in.get<std::uint64_t>();
  request.secret = in.get<std::uint64_t>();
  if (minor >= 3) request.listed_in = in.get<std::uint64_t>();
  const auto count = in.get<std::uint32_t>();
  if (count > max_held) return ends_early("a reattach request");
  for (std::uint32_t i = 0; i < count; ++i) {
    held_block held;
    held.block = in.get<std::uint64_t>();
    held.grant_version = in.get<std::uint32_t>();
    if (minor >= 3) held.parts = in.get<std::uint64_t>();
    request.held.push_back(held);
  }
  if (!in.ok()) return ends_early("a reattach request");
  return request;
}

result<std::vector<std::uint32_t>> decode_slab_query(std::span<const std::byte> payload) {
  byte_reader in(payload);
  const auto count = in.get<std::uint32_t>();
  if (count > max_slabs_a_query) return ends_early("a slab query");
  std::vector<std::uint32_t> indices(count);
  for (std::uint32_t& index : indices) index = in.get<std::uint32_t>();
  if (!in.ok()) return ends_early("a slab query");
  return indices;
}

std::vector<std::byte> encode(const unconfirmed_reply& reply) {
  byte_writer out;
  out.put(reply.removals);
  out.put(reply.nodes);
  return std::move(out).take();
}

result<unconfirmed_reply> decode_unconfirmed_reply(std::span<const std::byte> payload) {
  byte_reader in(payload);
  unconfirmed_reply reply;
  reply.removals = in.get<std::uint64_t>();
  reply.nodes = in.get<std::uint64_t>();
  if (!in.ok()) return ends_early("an answer about removals");
  return reply;
}

result<std::vector<slab_descriptor>> decode_slabs(std::span<const std::byte> payload) {
  byte_reader in(payload);
  const auto count = in.get<std::uint32_t>();
  if (count > max_slabs_a_query) return ends_early("a slab reply");
  std::vector<slab_descriptor> slabs(count);
  for (slab_descriptor& slab : slabs) {
    slab.index = in.get<std::uint32_t>();
    slab.bytes = in.get<std::uint64_t>();
  }
  if (!in.ok()) return ends_early("a slab reply");
  return slabs;
}

}  // namespace cenote::local
