// The C ABI of groups of ranks.
#include <span>

#include "client/c_api_support.hpp"

using cenote::error_code;
using cenote::c_api::call;
using cenote::c_api::clear_results;
using cenote::c_api::failed;
using cenote::c_api::finish;
using cenote::c_api::free_handle;
using cenote::c_api::hand_out;
using cenote::c_api::null_argument;
using cenote::c_api::session_object;
namespace client = cenote::client;

template <>
struct cenote::c_api::handle_traits<cenote_rank_group> {
  struct object : client::handle_object {
    object(cenote_session* owner, std::unique_ptr<client::group_ticket> joined) noexcept
        : session(owner), ticket(std::move(joined)) {}
    cenote_session* session;
    std::unique_ptr<client::group_ticket> ticket;
  };
  static constexpr auto kind = client::handle_kind::rank_group;
};

namespace {

using rank_group_object = cenote::c_api::handle_traits<cenote_rank_group>::object;

static_assert(CENOTE_GROUP_LOST == static_cast<int>(error_code::group_lost));
static_assert(sizeof(cenote_length) == sizeof(client::group_length));
static_assert(offsetof(cenote_length, length) == offsetof(client::group_length, length));

/// A call about a group is one about its session, too.
template <class Body>
int with_ticket(const rank_group_object& group, Body&& body) noexcept {
  return call(group.session, [&](session_object& target) { return body(*target.impl, *group.ticket); });
}
template <class Body>
int with_ticket(cenote_rank_group* group, Body&& body) noexcept {
  return call(group, [&](rank_group_object& member) { return with_ticket(member, body); });
}

/// No overflow of the clock.
std::chrono::nanoseconds time_of(std::uint64_t nanoseconds) noexcept {
  return std::chrono::nanoseconds(std::min(nanoseconds, std::uint64_t{1} << 60));
}

}  // namespace

extern "C" {

int cenote_group_join(cenote_session* session, const char* name, uint32_t rank, uint32_t size, uint64_t timeout_ns,
                      uint64_t wait_ns, cenote_rank_group** out) {
  clear_results(out);
  return call(session, [&](session_object& target) {
    if (name == nullptr || out == nullptr) return null_argument("name or out");
    auto joined = target.impl->join(name, rank, size, time_of(timeout_ns), time_of(wait_ns));
    if (!joined) return failed(joined.error());
    return hand_out(out, std::make_unique<rank_group_object>(session, std::move(*joined)));
  });
}

int cenote_agree(cenote_rank_group* group, uint64_t question, uint64_t length, uint64_t* decided) {
  return with_ticket(group, [&](client::session& target, client::group_ticket& ticket) {
    return decided == nullptr ? null_argument("decided") : finish(target.agree(ticket, question, length), decided);
  });
}

int cenote_agree_start(cenote_rank_group* group, const cenote_length* questions, size_t count) {
  return with_ticket(group, [&](client::session& target, client::group_ticket& ticket) {
    if (questions == nullptr && count != 0) return null_argument("questions");
    const std::span list(reinterpret_cast<const client::group_length*>(questions), count);
    return finish(target.start(ticket, list));
  });
}

int cenote_agree_poll(cenote_rank_group* group, cenote_length* out, size_t capacity, uint64_t timeout_ns,
                      size_t* count) {
  clear_results(count);
  return with_ticket(group, [&](client::session& target, client::group_ticket& ticket) {
    if (count == nullptr || (out == nullptr && capacity != 0)) return null_argument("out or count");
    const std::span places(reinterpret_cast<client::group_length*>(out), capacity);
    return finish(target.poll(ticket, places, time_of(timeout_ns)), count);
  });
}

int cenote_group_leave(cenote_rank_group* group) {
  return with_ticket(
      group, [](client::session& target, client::group_ticket& ticket) { return finish(target.leave(ticket)); });
}

void cenote_group_free(cenote_rank_group* group) {
  // Also wakes the calls of other threads, with CENOTE_GROUP_LOST.
  free_handle(group, [](const rank_group_object& member) {
    static_cast<void>(with_ticket(
        member, [](client::session& target, client::group_ticket& ticket) { return finish(target.leave(ticket)); }));
  });
}

}  // extern "C"
