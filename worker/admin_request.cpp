#include "worker/admin_request.hpp"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/text.hpp"

namespace cenote {

namespace {

using nlohmann::json;

constexpr std::size_t max_text_bytes = 4096;  // of one value

/// Takes one value after the other from the parser; the first that does not fit ends it.
class request_reader final : public json::json_sax_t {
 public:
  [[nodiscard]] result<admin_request> take(bool parsed) && {
    if (problem_) return std::unexpected(*problem_);
    if (!parsed || !seen_.contains("command")) {
      return fail(error_code::malformed, "an admin request is a JSON object with a `command`");
    }
    return std::move(request_);
  }

  bool null() override { return mismatch("null"); }
  bool boolean(bool value) override {
    if (key_ != "all" && key_ != "both") return mismatch("a boolean");
    (key_ == "all" ? request_.all : request_.both) = value;
    return true;
  }
  bool number_integer(number_integer_t) override { return mismatch("a negative number"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (key_ != "id") return mismatch("a number");
    request_.id = value;
    return true;
  }
  bool number_float(number_float_t, const string_t&) override { return mismatch("another number"); }
  bool string(string_t& value) override {
    if (value.size() > max_text_bytes) {
      return refuse(where() + " has " + std::to_string(value.size()) + " bytes; at most " +
                    std::to_string(max_text_bytes) + " are allowed");
    }
    if (key_ == "command") {
      request_.command = std::move(value);
    } else if (key_ == "instance") {
      request_.instance = std::move(value);
    } else if (key_ == "level") {
      request_.level = std::move(value);
    } else if (key_ == "from") {
      request_.from = std::move(value);
    } else if (key_ == "to") {
      request_.to = std::move(value);
    } else if (key_ == "node") {
      request_.node = std::move(value);
    } else {
      return mismatch("a string");
    }
    return true;
  }
  bool binary(binary_t&) override { return mismatch("bytes"); }
  bool start_object(std::size_t) override { return std::exchange(inside_, true) ? mismatch("an object") : true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return inside_ ? mismatch("an array") : false; }
  bool end_array() override { return true; }
  bool key(string_t& name) override {
    static const std::set<std::string_view> known{"command", "instance", "level", "id",  "all",
                                                  "both",    "from",     "to",    "node"};
    key_ = name;
    if (!known.contains(key_)) return refuse("unknown field " + where());
    if (!seen_.insert(key_).second) return refuse(where() + " is there twice");
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override { return false; }

 private:
  [[nodiscard]] std::string where() const { return "`" + printable(cut_text(key_, 64)) + "`"; }

  bool refuse(std::string why) {
    problem_ = error(error_code::invalid_argument, "admin request: " + std::move(why));
    return false;
  }
  bool mismatch(const char* got) {
    if (!inside_) return false;
    const char* wanted = key_ == "id"                      ? "a whole number of 64 bits"
                         : key_ == "all" || key_ == "both" ? "true or false"
                                                           : "a string";
    return refuse(where() + " must be " + wanted + ", not " + got);
  }

  admin_request request_;
  std::optional<error> problem_;
  std::string key_;
  std::set<std::string> seen_;
  bool inside_ = false;
};

}  // namespace

result<admin_request> parse_admin_request(std::string_view text) {
  request_reader reader;
  const bool parsed = json::sax_parse(text.begin(), text.end(), &reader);
  return std::move(reader).take(parsed);
}

}  // namespace cenote
