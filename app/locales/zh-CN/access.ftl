### 登录与首次设置。

field-name = 您的姓名
field-email = 电子邮箱
field-password = 密码

sign-in-title = 登录
sign-in-next = 登录后将前往您请求的页面。
sign-in-error-wrong = 邮箱或密码不正确。
sign-in-error-wait = 尝试次数过多，请在 { $wait }后再试。
access-error-other = 操作未成功，请重试。

set-up-title = 设置 Jobdeck
set-up-intro = 您将创建第一个管理员。之后可以添加其他人；此页面随后永久关闭。
set-up-password-hint = 至少 { $n } 个字符，支持粘贴和密码管理器。
set-up-submit = 创建管理员
set-up-error-name = 请输入不超过 100 个字符的姓名。
set-up-error-email = 请输入电子邮箱，例如 ana@example.com。
set-up-error-short = 密码太短：至少需要 { $n } 个字符。
set-up-error-long = 密码太长：最多 1,024 字节。
set-up-error-common = 这是常见密码，容易被猜中。请选用互不相关的词语。
set-up-error-own = 密码由您的姓名或邮箱组成。请换用其他词语。
set-up-error-pattern = 密码是键盘上的连续按键或重复的模式。请选用互不相关的词语。
set-up-closed-title = 此链接无效
set-up-closed-text = 链接已被使用、已过期或不完整。设置链接只能使用一次。
set-up-closed-new-link = 如需新链接，请重新启动 Jobdeck，或在安装它的机器上运行：
set-up-closed-sign-in = 如果已有管理员，请登录。
