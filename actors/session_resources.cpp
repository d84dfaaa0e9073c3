#include "actors/session_resources.hpp"

#include <sys/eventfd.h>

#include <array>

#include "config/logging.hpp"
#include "core/byte_io.hpp"
#include "core/text.hpp"
#include "transport/local/doorbell.hpp"

namespace cenote {

void session_resources::ring() const noexcept {
  local::ring_doorbell(complete_doorbell.get());
}

result<unique_fd> make_session(session_resources& session) {
  const std::uint64_t bytes = memory::session_memory::segment_bytes(session.pin_slots);
  auto segment = memory::segment::create("cenote-session-" + std::to_string(session.number), bytes);
  if (!segment) return std::unexpected(segment.error());
  session.segment = std::move(*segment);
  session.view = memory::session_memory::create(session.segment, session.number, session.pin_slots);
  session.submit_doorbell = unique_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!session.submit_doorbell) return fail_errno("eventfd");
  auto doorbell = local::make_doorbell();
  if (!doorbell) return std::unexpected(doorbell.error());
  session.complete_doorbell = std::move(doorbell->bell);
  return std::move(doorbell->ear);
}

result<void> keep_session(local::keeper_link& keeper, const session_resources& session) {
  byte_writer meta;
  meta.put(session.secret);
  meta.put(session.instance);
  meta.put(static_cast<std::int32_t>(session.pid));
  meta.put(static_cast<std::uint32_t>(session.uid));
  meta.put(static_cast<std::uint32_t>(session.gid));
  meta.put(session.pin_slots);
  meta.put(static_cast<std::int64_t>(std::chrono::system_clock::to_time_t(session.attached)));
  meta.put_text(session.client_name);
  meta.put(session.attach_call);
  const std::array fds{session.segment.fd().get(), session.submit_doorbell.get(), session.complete_doorbell.get(),
                       session.pidfd.get()};
  return keeper.put(local::entry_kind::session, session.number, meta.bytes(), fds);
}

std::uint32_t instance_of_session(const local::registry_entry& entry) {
  byte_reader meta(entry.meta);
  (void)meta.get<std::uint64_t>();  // the secret
  const auto instance = meta.get<std::uint32_t>();
  return meta.ok() ? instance : 0;
}

result<std::shared_ptr<session_resources>> recover_session(local::registry_entry entry) {
  byte_reader meta(entry.meta);
  auto session = std::make_shared<session_resources>();
  session->number = entry.id;
  session->secret = meta.get<std::uint64_t>();
  session->instance = meta.get<std::uint32_t>();
  session->pid = meta.get<std::int32_t>();
  session->uid = meta.get<std::uint32_t>();
  session->gid = meta.get<std::uint32_t>();
  session->pin_slots = meta.get<std::uint32_t>();
  session->attached = std::chrono::system_clock::from_time_t(meta.get<std::int64_t>());
  session->client_name = as_utf8(meta.get_text());
  // Earlier versions did not keep it.
  if (meta.remaining() >= sizeof session->attach_call) session->attach_call = meta.get<std::uint64_t>();
  if (!meta.ok() || entry.fds.size() != 4 || session->pin_slots > memory::session_memory::max_pin_slots) {
    return fail(error_code::layout_mismatch, "the description of a session makes no sense");
  }
  const std::uint64_t bytes = memory::session_memory::segment_bytes(session->pin_slots);
  auto segment = memory::segment::map(std::move(entry.fds[0]), bytes, memory::access::read_write);
  if (!segment) return std::unexpected(segment.error());
  session->segment = std::move(*segment);
  session->view = memory::session_memory(session->segment.data(), session->pin_slots);
  session->submit_doorbell = std::move(entry.fds[1]);
  session->complete_doorbell = std::move(entry.fds[2]);
  if (!local::is_doorbell(session->complete_doorbell.get())) {
    log_warn(logger("recovery"), "a session of an earlier version cannot be woken: its waits are up to 100 ms longer",
             {{"session", session->number}, {"pid", session->pid}});
  }
  session->pidfd = std::move(entry.fds[3]);
  return session;
}

}  // namespace cenote
