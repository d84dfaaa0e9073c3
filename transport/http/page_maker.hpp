// The thread that makes pages which have to wait for other threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "transport/http/server.hpp"

namespace cenote::http {

/// An HTTP answer.
struct answer {
  int status = 200;
  std::string type;
  std::string body;
};

/// Makes the page; a failure or exception becomes an answer, too.
[[nodiscard]] answer make_answer(const page_source& source) noexcept;

/// Makes one page at a time. Thread-safe.
class page_maker {
 public:
  using callback = std::function<void(const std::string& path, answer)>;

  /// `done` is called on the maker's thread. `pages` outlive it.
  page_maker(const std::map<std::string, page_source>& pages, callback done);
  page_maker(const page_maker&) = delete;
  page_maker& operator=(const page_maker&) = delete;
  /// Waits for the page under way; those that wait are not made.
  ~page_maker();

  /// `path` is one of the pages.
  void ask(std::string path);

 private:
  void run();

  const std::map<std::string, page_source>& pages_;
  callback done_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::string> requests_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace cenote::http
