// zmq_poll() looks at every socket at every call; an epoll of their descriptors does not.
#include "transport/zmq/poller.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

namespace cenote::zmq {

result<descriptor_poller> descriptor_poller::make() {
  unique_fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno("epoll_create1");
  return descriptor_poller(std::move(epoll));
}

descriptor_watch::~descriptor_watch() {
  if (descriptor_ >= 0) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor_, nullptr);
}

result<descriptor_watch> descriptor_poller::add(int descriptor, token name) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = name;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) return fail_errno("epoll_ctl");
  return descriptor_watch(epoll_.get(), descriptor);
}

const std::vector<descriptor_poller::token>& descriptor_poller::wait(std::chrono::milliseconds limit,
                                                                     std::size_t limit_count) {
  events_.resize(limit_count);
  const auto time = static_cast<int>(std::clamp<std::int64_t>(limit.count(), 0, 3'600'000));
  const int count = ::epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), time);
  ready_.clear();
  for (int i = 0; i < count; ++i) ready_.push_back(events_[static_cast<std::size_t>(i)].data.u64);
  return ready_;
}

}  // namespace cenote::zmq
