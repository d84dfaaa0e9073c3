#include "transport/local/keeper_link.hpp"

#include <fcntl.h>
#include <poll.h>

#include <utility>

#include "core/byte_io.hpp"
#include "memory/store_point.hpp"

namespace cenote::local {

namespace {

/// The point that is passed when the keeper was told.
store_point point_of(const link_header& header) noexcept {
  switch (header.message) {
    case link_message::put:
      switch (header.kind) {
        case entry_kind::records: return "keeper.records_put"_point;
        case entry_kind::instance: return "keeper.instance_put"_point;
        case entry_kind::slab: return "keeper.slab_put"_point;
        case entry_kind::session: return "keeper.session_put"_point;
        case entry_kind::configuration: return "keeper.configuration_put"_point;
        case entry_kind::tier_memory: return "keeper.tier_memory_put"_point;
        case entry_kind::reserve: return "keeper.reserve_put"_point;
        default: return "keeper.node_put"_point;
      }
    case link_message::drop:
      switch (header.kind) {
        case entry_kind::records: return "keeper.records_dropped"_point;
        case entry_kind::instance: return "keeper.instance_dropped"_point;
        case entry_kind::slab: return "keeper.slab_dropped"_point;
        case entry_kind::session: return "keeper.session_dropped"_point;
        case entry_kind::reserve: return "keeper.reserve_dropped"_point;
        default: return "keeper.node_dropped"_point;
      }
    case link_message::ready: return "keeper.told_ready"_point;
    case link_message::alive: return "keeper.told_alive"_point;
    case link_message::ask_upgrade: return "keeper.upgrade_asked"_point;
    case link_message::ask_listener: return "keeper.listener_asked"_point;
    default: return "keeper.told_why"_point;  // fatal
  }
}

/// The end of the link is the end of this node. A caller may ask again: it meets the next node, or none.
error link_error(const error& failure) {
  if (failure.code() != error_code::closed) return failure.in("keeper");
  return {error_code::node_restarting, "keeper: " + failure.message()};
}

}  // namespace

keeper_link::keeper_link(unique_fd fd) noexcept : fd_(std::move(fd)), keeper_(::getppid()) {
  ::fcntl(fd_.get(), F_SETFD, FD_CLOEXEC);
}

result<link_packet> keeper_link::receive(deadline until) {
  for (;;) {
    auto got = try_receive_link(fd_.get());
    if (!got) return std::unexpected(link_error(got.error()));
    if (*got) return std::move(**got);
    if (auto ready = detail::wait_for(fd_.get(), POLLIN, until); !ready) {
      return std::unexpected(ready.error().in("keeper"));
    }
  }
}

result<handover> keeper_link::receive_handover(duration limit) {
  const std::lock_guard lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + limit;
  auto first = receive(until);
  if (!first) return std::unexpected(std::move(first.error()));
  byte_reader in(first->payload);
  handover out;
  out.epoch = in.get<std::uint64_t>();
  out.node_started =
      std::chrono::system_clock::time_point(std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::nanoseconds(in.get<std::int64_t>())));
  out.restarts = in.get<std::uint32_t>();
  const auto count = in.get<std::uint32_t>();
  if (first->header.message != link_message::handover || !in.ok() || first->fds.size() != 1) {
    return fail(error_code::malformed, "keeper: the link does not begin with a handover");
  }
  out.listener = std::move(first->fds.front());
  for (;;) {
    auto next = receive(until);
    if (!next) return std::unexpected(std::move(next.error()));
    if (next->header.message == link_message::handover_end) break;
    if (next->header.message != link_message::entry) {
      return fail(error_code::malformed, "keeper: something else than an entry in the handover");
    }
    out.entries.push_back({next->header.kind, next->header.id, std::move(next->payload), std::move(next->fds)});
  }
  if (out.entries.size() != count) return fail(error_code::malformed, "keeper: entries are missing in the handover");
  return out;
}

result<link_packet> keeper_link::exchange(link_header header, std::span<const std::byte> payload,
                                          std::span<const int> fds, duration limit) {
  const std::lock_guard lock(mutex_);
  const auto until = std::chrono::steady_clock::now() + limit;
  header.sequence = ++sequence_;
  for (;;) {
    const auto sent = try_send_link(fd_.get(), header, payload, fds);
    if (!sent) return std::unexpected(link_error(sent.error()));
    if (*sent) break;
    if (auto room = detail::wait_for(fd_.get(), POLLOUT, until); !room) return std::unexpected(room.error());
  }
  memory::passed(point_of(header));  // the keeper has it, and its answer is not read
  for (;;) {
    auto reply = receive(until);
    if (!reply) return std::unexpected(std::move(reply.error()));
    // The late answer to a call that met its deadline is nobody's any more.
    if (reply->header.sequence != header.sequence) continue;
    if (reply->header.message == link_message::ack) return std::move(*reply);
    if (reply->header.message == link_message::refused) return std::unexpected(decode_failure(reply->payload));
    return fail(error_code::malformed, "keeper: neither ack nor refusal");
  }
}

result<void> keeper_link::call(link_header header, std::span<const std::byte> payload, std::span<const int> fds,
                               duration limit) {
  auto reply = exchange(header, payload, fds, limit);
  if (!reply) return std::unexpected(std::move(reply.error()));
  return {};
}

result<void> keeper_link::put(entry_kind kind, std::uint64_t id, std::span<const std::byte> meta,
                              std::span<const int> fds, duration limit) {
  // What does not fit is refused here: the kernel's own words ("message too long") would not help anyone.
  if (meta.size() > max_entry_meta || fds.size() > max_entry_fds) {
    return fail(error_code::limit_exceeded, "a registry entry holds at most 32 KiB and 8 descriptors");
  }
  link_header header;
  header.message = link_message::put;
  header.kind = kind;
  header.id = id;
  return call(header, meta, fds, limit);
}

result<void> keeper_link::put(const registry_entry& entry, duration limit) {
  return put(entry.kind, entry.id, entry.meta, numbers_of(entry.fds), limit);
}

result<void> keeper_link::drop(entry_kind kind, std::uint64_t id, duration limit) {
  link_header header;
  header.message = link_message::drop;
  header.kind = kind;
  header.id = id;
  return call(header, {}, {}, limit);
}

result<void> keeper_link::ready(duration limit) {
  link_header header;
  header.message = link_message::ready;
  return call(header, {}, {}, limit);
}

result<void> keeper_link::ask_upgrade(duration limit) {
  link_header header;
  header.message = link_message::ask_upgrade;
  return call(header, {}, {}, limit);
}

result<std::optional<unique_fd>> keeper_link::renewed_listener(duration limit) {
  link_header header;
  header.message = link_message::ask_listener;
  {
    const std::lock_guard lock(mutex_);
    header.id = listener_number_;
  }
  auto reply = exchange(header, {}, {}, limit);
  if (!reply) return std::unexpected(std::move(reply.error()));
  if (reply->fds.empty()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  listener_number_ = reply->header.id;
  return std::move(reply->fds.front());
}

bool keeper_link::keeper_is_dead() const noexcept {
  return ::getppid() != keeper_;
}

void keeper_link::fatal(std::string_view reason) noexcept {
  // No lock: the thread that dies may hold it, and a packet is sent whole or not at all.
  link_header header;
  header.message = link_message::fatal;
  const auto text = reason.substr(0, 4096);
  [[maybe_unused]] const auto sent = try_send_link(fd_.get(), header, std::as_bytes(std::span(text)), {});
  memory::passed(point_of(header));
}

void keeper_link::alive(std::chrono::milliseconds silence, std::string_view who) noexcept {
  // No lock and no answer, as in fatal(): the threads that make calls may be those that hang.
  link_header header;
  header.message = link_message::alive;
  byte_writer out;
  out.put(static_cast<std::uint64_t>(silence.count()));
  out.put_text(who.substr(0, 4096));
  [[maybe_unused]] const auto sent = try_send_link(fd_.get(), header, out.bytes(), {});
  memory::passed(point_of(header));
}

}  // namespace cenote::local
