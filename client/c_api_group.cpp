// The C ABI of groups of ranks.
#include <span>

#include "client/c_api_support.hpp"

using cenote::error_code;
using cenote::c_api::failed;
using cenote::c_api::finish;
using cenote::c_api::guarded;
using cenote::c_api::null_argument;
namespace client = cenote::client;

struct cenote_rank_group {
  cenote_session* session;
  std::unique_ptr<client::group_ticket> ticket;
};

namespace {

static_assert(CENOTE_GROUP_LOST == static_cast<int>(error_code::group_lost));
static_assert(sizeof(cenote_length) == sizeof(client::group_length));
static_assert(offsetof(cenote_length, length) == offsetof(client::group_length, length));

/// No overflow of the clock.
std::chrono::nanoseconds time_of(std::uint64_t nanoseconds) noexcept {
  return std::chrono::nanoseconds(std::min(nanoseconds, std::uint64_t{1} << 60));
}

}  // namespace

extern "C" {

int cenote_group_join(cenote_session* session, const char* name, uint32_t rank, uint32_t size, uint64_t timeout_ns,
                      uint64_t wait_ns, cenote_rank_group** out) {
  return guarded([&] {
    if (session == nullptr || name == nullptr || out == nullptr) return null_argument("session, name or out");
    *out = nullptr;
    auto joined = session->impl->join(name, rank, size, time_of(timeout_ns), time_of(wait_ns));
    if (!joined) return failed(joined.error());
    *out = std::make_unique<cenote_rank_group>(cenote_rank_group{session, std::move(*joined)}).release();
    return static_cast<int>(CENOTE_OK);
  });
}

int cenote_agree(cenote_rank_group* group, uint64_t question, uint64_t length, uint64_t* decided) {
  return guarded([&] {
    if (group == nullptr || decided == nullptr) return null_argument("group or decided");
    return finish(group->session->impl->agree(*group->ticket, question, length), decided);
  });
}

int cenote_agree_start(cenote_rank_group* group, const cenote_length* questions, size_t count) {
  return guarded([&] {
    if (group == nullptr || (questions == nullptr && count != 0)) return null_argument("group or questions");
    const std::span list(reinterpret_cast<const client::group_length*>(questions), count);
    return finish(group->session->impl->start(*group->ticket, list));
  });
}

int cenote_agree_poll(cenote_rank_group* group, cenote_length* out, size_t capacity, uint64_t timeout_ns,
                      size_t* count) {
  return guarded([&] {
    if (group == nullptr || count == nullptr || (out == nullptr && capacity != 0)) return null_argument("an argument");
    *count = 0;
    const std::span places(reinterpret_cast<client::group_length*>(out), capacity);
    return finish(group->session->impl->poll(*group->ticket, places, time_of(timeout_ns)), count);
  });
}

int cenote_group_leave(cenote_rank_group* group) {
  return guarded(
      [&] { return group == nullptr ? null_argument("group") : finish(group->session->impl->leave(*group->ticket)); });
}

void cenote_group_free(cenote_rank_group* group) {
  const std::unique_ptr<cenote_rank_group> gone(group);
  if (gone) (void)guarded([&] { return finish(gone->session->impl->leave(*gone->ticket)); });
}

}  // extern "C"
