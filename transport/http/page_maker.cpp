#include "transport/http/page_maker.hpp"

#include <pthread.h>

#include <exception>
#include <utility>

namespace cenote::http {

answer make_answer(const page_source& source) noexcept {
  try {
    auto made = source.make();
    if (made) return {200, std::move(made->type), std::move(made->body)};
    return {503, "text/plain", made.error().describe() + "\n"};
  } catch (const std::exception& why) {
    return {500, "text/plain", std::string("this page could not be made: ") + why.what() + "\n"};
  } catch (...) {
    return {500, "text/plain", "this page could not be made\n"};
  }
}

page_maker::page_maker(const std::map<std::string, page_source>& pages, callback done)
    : pages_(pages), done_(std::move(done)) {
  thread_ = std::thread([this] { run(); });
}

page_maker::~page_maker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void page_maker::ask(std::string path) {
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(std::move(path));
  }
  wake_.notify_one();
}

void page_maker::run() {
  ::pthread_setname_np(::pthread_self(), "cenote-pages");
  while (true) {
    std::string path;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || !requests_.empty(); });
      if (stopping_) return;
      path = std::move(requests_.front());
      requests_.pop_front();
    }
    done_(path, make_answer(pages_.at(path)));
  }
}

}  // namespace cenote::http
