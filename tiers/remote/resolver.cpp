// Look-ups on detached threads, one at a time a resolver.
#include "tiers/remote/resolver.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>

#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace cenote::remote {

struct resolver::shared {
  explicit shared(std::function<void()> waker, lookup way) : wake(std::move(waker)), how(std::move(way)) {}

  std::mutex mutex;
  bool is_busy = false;
  std::function<void()> wake;  // empty: the resolver is gone
  const lookup how;
  std::optional<result<addresses>> answer;
};

resolver::resolver(endpoint where, std::function<void()> wake, lookup how)
    : where_(std::move(where)), shared_(std::make_shared<shared>(std::move(wake), std::move(how))) {}

resolver::~resolver() {
  const std::lock_guard lock(shared_->mutex);
  shared_->wake = nullptr;
}

result<void> resolver::ask() {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->is_busy) return {};
    shared_->is_busy = true;
    shared_->answer.reset();
  }
  const auto work = [kept = shared_, where = where_]() noexcept {
    ::pthread_setname_np(::pthread_self(), "cenote-resolve");
    std::optional<result<addresses>> found;
    try {
      found = kept->how(where);
    } catch (...) {
      found = fail(error_code::system, "no memory to look up a name");
    }
    const std::lock_guard lock(kept->mutex);
    kept->is_busy = false;
    kept->answer = std::move(found);
    if (kept->wake) kept->wake();
  };
  try {
    std::thread(work).detach();
  } catch (const std::system_error& failed) {
    const std::lock_guard lock(shared_->mutex);
    shared_->is_busy = false;
    return fail(error_code::system, std::string("start a thread that looks up names: ") + failed.what());
  }
  return {};
}

std::optional<result<resolver::addresses>> resolver::take() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->answer, std::nullopt);
}

result<resolver::addresses> resolver::by_system(const endpoint& where) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* first = nullptr;
  const int code = ::getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &wanted, &first);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(first, [](addrinfo* each) {
    if (each != nullptr) ::freeaddrinfo(each);
  });
  if (code != 0) return fail(error_code::system, "look up " + where.host + ": " + ::gai_strerror(code));
  addresses found;
  for (const addrinfo* each = first; each != nullptr; each = each->ai_next) {
    socket_address address;
    if (each->ai_addrlen > sizeof(address.bytes)) continue;
    std::memcpy(&address.bytes, each->ai_addr, each->ai_addrlen);
    address.size = each->ai_addrlen;
    found.push_back(address);
  }
  if (found.empty()) return fail(error_code::system, "look up " + where.host + ": no address");
  return found;
}

}  // namespace cenote::remote
