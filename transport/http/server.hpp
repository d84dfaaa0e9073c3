// A small HTTP server for those who watch a node.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/endpoint.hpp"

namespace cenote::http {

struct page {
  std::string type;  ///< of the content, as in "text/plain"
  std::string body;
};

/// Answers GET requests on threads of its own. A page that fails is answered with 503 and the error's text.
class server {
 public:
  /// Called on the server's threads; may block, but not for longer than a client waits.
  using maker = std::function<result<page>()>;

  /// Takes the port, and answers nobody yet. Errors: system (the port is taken, no such address).
  [[nodiscard]] static result<std::unique_ptr<server>> bind(const endpoint& where);
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server();

  /// Answers from now on. To be called once. `pages`: by path.
  void serve(const std::map<std::string, maker>& pages);
  /// Where it listens.
  [[nodiscard]] const endpoint& where() const noexcept { return where_; }
  /// Ends the threads; takes as long as the answers under way, and no maker runs afterwards.
  void stop() noexcept;

 private:
  struct parts;
  server(endpoint where, std::unique_ptr<parts> made);

  endpoint where_;
  std::unique_ptr<parts> parts_;
};

}  // namespace cenote::http
