// A command as it stands in a configuration: words with blanks between them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cenote {

/// The words of a command. No shell looks at it: there are no quotes.
[[nodiscard]] std::vector<std::string> command_words(std::string_view text);

/// The path of a program, sought in $PATH if it has no '/'. Empty: it is nowhere, or is not to be executed.
[[nodiscard]] std::string program_path(const std::string& name);

}  // namespace cenote
